"""Benchmarks: each compares with a floor measured in the same run, so that a ratio and not a machine is reported."""
