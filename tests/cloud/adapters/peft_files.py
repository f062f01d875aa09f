"""Writes PEFT folders as trainers leave them, with random weights and whatever fault a test asks for."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cloud.adapters.peft import CONFIG_FILE, WEIGHTS_FILE
from cloud.sizing.geometry import Geometry, geometry_of
from cloud.sizing.sources import PUBLISHED

BASE = geometry_of(PUBLISHED["smollm2-135m-instruct"])


def write_peft(
    folder: Path,
    *,
    base: Geometry = BASE,
    rank: int = 8,
    layers: int = 2,
    seed: int = 0,
    scale: float = 0.1,
    config: Mapping[str, Any] | None = None,
    change: Callable[[dict[str, np.ndarray[Any, Any]]], None] = lambda tensors: None,
) -> Path:
    """A LoRA adapter of the value and down projections of the first `layers` layers."""
    chance = np.random.default_rng(seed)
    tensors: dict[str, np.ndarray[Any, Any]] = {}
    shapes = {
        "self_attn.v_proj": (base.hidden, base.kv_heads * base.head_length),
        "mlp.down_proj": (base.feed_forward, base.hidden),
    }
    for layer in range(layers):
        for module, (columns, rows) in shapes.items():
            name = f"base_model.model.model.layers.{layer}.{module}"
            tensors[f"{name}.lora_A.weight"] = chance.normal(0, scale, (rank, columns)).astype(np.float32)
            tensors[f"{name}.lora_B.weight"] = chance.normal(0, scale, (rows, rank)).astype(np.float32)
    change(tensors)
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / WEIGHTS_FILE, tensors)
    stated = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": ["v_proj", "down_proj"]}
    (folder / CONFIG_FILE).write_text(json.dumps(stated | {"bias": "none"} | dict(config or {})))
    return folder


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """The file format itself, so that tests need no framework."""
    header, at = {}, 0
    for name, values in tensors.items():
        size = math.prod(values.shape) * 4
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + b"".join(each.tobytes() for each in tensors.values()))
