"""LoRA adapters for tests: random weights that change what the model says, written with the reference package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

MODULES = ("attn_q", "attn_v", "ffn_down")
_SIDES = {"attn_q": (576, 576), "attn_k": (576, 192), "attn_v": (576, 192), "ffn_down": (1536, 576)}
"""Columns in and rows out of the default model's matrices."""


def write_adapter(
    path: Path,
    *,
    seed: int = 0,
    rank: int = 8,
    ranks: Mapping[str, int] | None = None,
    layers: int = 30,
    modules: tuple[str, ...] = MODULES,
    strength: float = 0.04,
    alpha: float = 16.0,
    dtype: type[np.floating[Any]] = np.float16,
    strings: Mapping[str, str] | None = None,
    architecture: str = "llama",
    tensors: Mapping[str, Any] | None = None,
) -> Path:
    """Write an adapter for the default model: `ranks` overrides single modules (`blk.3.attn_q`), `strings` adds keys,
    `tensors` replaces or adds arrays by name."""
    draw = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, architecture)
    for key, text in {"general.type": "adapter", "adapter.type": "lora", **(strings or {})}.items():
        writer.add_string(key, text)
    writer.add_float32("adapter.lora.alpha", alpha)
    written: dict[str, Any] = {}
    for layer in range(layers):
        for module in modules:
            name = f"blk.{layer}.{module}"
            own = (ranks or {}).get(name, rank)
            columns, rows = _SIDES[module]
            written[f"{name}.weight.lora_a"] = draw.normal(0, 1 / np.sqrt(columns), (own, columns)).astype(dtype)
            written[f"{name}.weight.lora_b"] = draw.normal(0, strength, (rows, own)).astype(dtype)
    for name, values in {**written, **(tensors or {})}.items():
        if values is not None:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
