"""Load tests, the demo and the benchmarks: everything that drives a running stack from outside."""
