"""HTTP pieces that router and edge agent share: intake, errors, event streams, lifecycle, probes."""
