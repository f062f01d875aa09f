"""KV-cache arithmetic, exact to the byte: layers x KV heads x (key + value length) x bytes per element x cells."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from edge.memory.geometry import ModelGeometry

CELL_ALIGNMENT_TOKENS = 256
"""llama.cpp rounds the cells of each slot up to this (`GGML_PAD(n_ctx, 256)`)."""


class KvType(StrEnum):
    """Element type of the KV cache."""

    F16 = "f16"
    Q8_0 = "q8_0"
    Q4_0 = "q4_0"

    @property
    def nominal_bits(self) -> int:
        """Bits of one element without its share of the block's scale."""
        return {KvType.F16: 16, KvType.Q8_0: 8, KvType.Q4_0: 4}[self]


class CacheElement(StrEnum):
    """Element type of a KV cache whose type the package fixes."""

    F32 = "f32"
    F16 = "f16"


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What the size of the cache depends on beside the model. `context_tokens` is per slot."""

    slots: int
    context_tokens: int
    ubatch_tokens: int


# Elements and bytes of one block (ggml-common.h): a quantised block carries a 2-byte scale.
_BLOCKS = {KvType.F16: (1, 2), KvType.Q8_0: (32, 34), KvType.Q4_0: (32, 18)}


def row_fits(geometry: ModelGeometry, kv_type: KvType) -> bool:
    """Whether keys and values of one head divide into whole blocks of `kv_type`."""
    elements, _ = _BLOCKS[kv_type]
    return geometry.key_length % elements == 0 and geometry.value_length % elements == 0


def kv_bytes_per_token(geometry: ModelGeometry, kv_type: KvType) -> int:
    """Bytes of keys and values of one token over all layers; `row_fits` must hold."""
    return _bytes_per_token(geometry, kv_type, sum(geometry.kv_heads_by_layer))


def cache_bytes(geometry: ModelGeometry, shape: CacheShape, kv_type: KvType) -> int:
    """Bytes that the engine allocates: layers with a window hold no more cells than window and micro-batch need.

    Source: llama.cpp, `llama_kv_cache_iswa`: window cells = min(context, pad(window + micro-batch, 256)), per slot.
    """
    cells = aligned_tokens(shape.context_tokens)
    windowed = geometry.windowed_kv_heads
    if geometry.window_tokens is None or not windowed:
        return shape.slots * cells * kv_bytes_per_token(geometry, kv_type)
    window_cells = min(cells, aligned_tokens(geometry.window_tokens + shape.ubatch_tokens))
    full = _bytes_per_token(geometry, kv_type, sum(geometry.kv_heads_by_layer) - windowed)
    return shape.slots * (cells * full + window_cells * _bytes_per_token(geometry, kv_type, windowed))


def nominal_tokens(budget_bytes: int, bytes_per_token_16_bit: int, bits: int) -> int:
    """Tokens that a budget holds at `bits` an element, the scales of quantised blocks not counted.

    This is the textbook figure; what the engine allocates is `cache_bytes`: 8.5 and 4.5 bits for q8_0 and q4_0.
    """
    return budget_bytes * 16 // (bytes_per_token_16_bit * bits)


def _bytes_per_token(geometry: ModelGeometry, kv_type: KvType, kv_heads: int) -> int:
    elements, size_bytes = _BLOCKS[kv_type]
    return kv_heads * (geometry.key_length + geometry.value_length) * size_bytes // elements


def kv_bytes(geometry: ModelGeometry, tokens: int, kv_type: KvType) -> int:
    """Bytes of the cache for `tokens` cells (all slots together)."""
    return tokens * kv_bytes_per_token(geometry, kv_type)


def aligned_tokens(tokens: int) -> int:
    """`tokens` rounded up to what the engine allocates."""
    return -(-tokens // CELL_ALIGNMENT_TOKENS) * CELL_ALIGNMENT_TOKENS
