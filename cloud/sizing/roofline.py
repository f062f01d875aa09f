"""Ceilings of prefill and decode on one replica, by the roofline model: no run can be faster than this.

Time of a step = max(operations / peak, bytes / bandwidth): Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.
Operations per token: 2 for each multiplied parameter (Kaplan et al., "Scaling laws", 2020, section 2.1), and 4 times
layers, heads and head length for each earlier token it attends to (scores and values).
Bytes of a step: every weight once, and the keys and values of every sequence (Pope et al., "Efficiently scaling
transformer inference", 2022, section 2). A step over several GPUs adds two all-reduces a layer, each of which moves
2 (g - 1) / g of the hidden states over every link (same source, appendix A).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cloud.sizing.geometry import Geometry
from cloud.sizing.gpus import Gpu

_HIDDEN_BYTES = 2
_S_TO_MS = 1000.0

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Load:
    """One replica: what each of its `gpus` reads in a step, and how fast it multiplies."""

    geometry: Geometry
    gpu: Gpu
    gpus: int
    weight_bytes: float
    """Of one GPU."""
    kv_bytes_per_token: float
    """Of one GPU."""
    flops_per_s: float
    """Of one GPU, for the type that is multiplied."""


def prefill_ms(load: Load, prompt_tokens: Array) -> Array:
    """Milliseconds of one prompt alone, to its first token. Shape: that of `prompt_tokens`."""
    shape = load.geometry
    head = shape.vocabulary * shape.hidden
    body = 2.0 * (shape.multiplied_parameters - head) * prompt_tokens + 2.0 * head  # only the last token is told
    attention = 2.0 * shape.layers * shape.heads * shape.head_length * prompt_tokens**2  # half of 4 n^2: causal
    moved = load.weight_bytes + prompt_tokens * load.kv_bytes_per_token
    return _step_ms(load, (body + attention) / load.gpus, moved, prompt_tokens)


def decode_ms(load: Load, sequences: Array, context_tokens: float) -> Array:
    """Milliseconds of one step in which `sequences` each get a token after `context_tokens`. Shape: `sequences`."""
    shape = load.geometry
    attended = 4.0 * shape.layers * shape.heads * shape.head_length * context_tokens
    operations = sequences * (2.0 * shape.multiplied_parameters + attended)
    moved = load.weight_bytes + sequences * context_tokens * load.kv_bytes_per_token
    return _step_ms(load, operations / load.gpus, moved, sequences)


def _step_ms(load: Load, operations: Array, moved_bytes: Array, tokens: Array) -> Array:
    computed_s = operations / load.flops_per_s
    read_s = moved_bytes / load.gpu.bandwidth_bytes_per_s
    return (np.maximum(computed_s, read_s) + _reduce_s(load, tokens)) * _S_TO_MS


def _reduce_s(load: Load, tokens: Array) -> Array:
    share = 2.0 * (load.gpus - 1) / load.gpus
    moved = 2 * load.geometry.layers * tokens * load.geometry.hidden * _HIDDEN_BYTES * share
    return moved / load.gpu.link_bytes_per_s
