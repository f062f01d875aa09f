"""The OpenAI HTTP surface as both tiers and the router understand it: bodies, facts, validation, events, errors."""
