"""L4: what a model costs per token on a device: operator graph, roofline, and when speculation pays."""
