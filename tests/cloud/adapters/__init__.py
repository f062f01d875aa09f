"""Adapters of the cloud tier."""
