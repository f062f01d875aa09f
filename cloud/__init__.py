"""The cloud tier: vLLM under Ray Serve, and what is ours around it."""
