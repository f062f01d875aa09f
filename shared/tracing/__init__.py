"""Traces: what a request did in each tier, as spans of one trace that hold nothing a caller wrote."""
