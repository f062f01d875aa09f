"""Fakes for faults and clocks, shipped beside the ports they stand in for."""
