"""KV-cache arithmetic, exact to the byte: layers x KV heads x (key + value length) x bytes per element x cells."""

from __future__ import annotations

from enum import StrEnum

from edge.memory.geometry import ModelGeometry

CELL_ALIGNMENT_TOKENS = 256
"""llama.cpp rounds the cells of each slot up to this (`GGML_PAD(n_ctx, 256)`)."""


class KvType(StrEnum):
    """Element type of the KV cache."""

    F16 = "f16"
    Q8_0 = "q8_0"
    Q4_0 = "q4_0"


# Elements and bytes of one block (ggml-common.h): a quantised block carries a 2-byte scale.
_BLOCKS = {KvType.F16: (1, 2), KvType.Q8_0: (32, 34), KvType.Q4_0: (32, 18)}


def row_fits(geometry: ModelGeometry, kv_type: KvType) -> bool:
    """Whether keys and values of one head divide into whole blocks of `kv_type`."""
    elements, _ = _BLOCKS[kv_type]
    return geometry.key_length % elements == 0 and geometry.value_length % elements == 0


def kv_bytes_per_token(geometry: ModelGeometry, kv_type: KvType) -> int:
    """Bytes of keys and values of one token over all layers; `row_fits` must hold."""
    elements, size_bytes = _BLOCKS[kv_type]
    per_head = geometry.key_length + geometry.value_length
    return sum(geometry.kv_heads_by_layer) * per_head * size_bytes // elements


def kv_bytes(geometry: ModelGeometry, tokens: int, kv_type: KvType) -> int:
    """Bytes of the cache for `tokens` cells (all slots together)."""
    return tokens * kv_bytes_per_token(geometry, kv_type)


def aligned_tokens(tokens: int) -> int:
    """`tokens` rounded up to what the engine allocates."""
    return -(-tokens // CELL_ALIGNMENT_TOKENS) * CELL_ALIGNMENT_TOKENS
