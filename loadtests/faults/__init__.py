"""Faults that a load test brings about while it runs, and takes back whatever happens."""
