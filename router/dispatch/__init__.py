"""Sends a decided request: candidates in order until the first content, streams as bytes, budgets and breakers."""
