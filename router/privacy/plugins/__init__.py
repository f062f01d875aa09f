"""Recognisers that come from elsewhere: their contract, how they are found, and adapters for common libraries."""
