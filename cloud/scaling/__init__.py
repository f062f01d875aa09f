"""How many replicas of a model run: a policy over queue and cache pressure, and its form for Ray Serve."""
