"""LoRA adapters of the cloud tier: PEFT folders that are checked, signed for, and served as `base:adapter`."""
