"""LoRA adapters as packages: what an adapter file claims, whether it suits its base model, which version is current."""
