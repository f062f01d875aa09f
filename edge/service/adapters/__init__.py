"""LoRA adapters while the agent runs: which are loaded, who uses them, what a request asks for."""
