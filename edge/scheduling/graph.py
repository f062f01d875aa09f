"""The operators of a llama-like decoder, each with its floating-point operations and the bytes that it moves.

Counts follow the usual accounting: 2 FLOPs per weight and token for a matrix product (Kaplan et al., "Scaling Laws for
Neural Language Models", 2020, table 1; Hoffmann et al., 2022, appendix F), attention by context length, grouped
keys and values read once per group. Weights are read once per micro-batch; activations are 32-bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edge.memory.geometry import ModelGeometry
from edge.memory.kv import KvType, kv_bytes_per_token

_ACTIVATION_BYTES = 4
_NORM_FLOPS_PER_ELEMENT = 4
_ROPE_FLOPS_PER_ELEMENT = 3
_SOFTMAX_FLOPS_PER_SCORE = 5


@dataclass(frozen=True, slots=True)
class Operator:
    """One kind of work over all layers: operations and bytes of weights, KV cache and activations."""

    name: str
    flops: float
    bytes_moved: float


@dataclass(frozen=True, slots=True)
class Workload:
    """One pass: `new_tokens` are computed after `past_tokens`, at most `ubatch_tokens` of them together."""

    new_tokens: int
    past_tokens: int
    ubatch_tokens: int

    @property
    def passes(self) -> int:
        """How often the weights are read."""
        return -(-self.new_tokens // self.ubatch_tokens)

    @property
    def positions(self) -> float:
        """Pairs of a new token and a position that it attends to (causal)."""
        return self.new_tokens * (self.past_tokens + (self.new_tokens + 1) / 2)


def decode(past_tokens: int) -> Workload:
    """One token after `past_tokens`."""
    return Workload(new_tokens=1, past_tokens=past_tokens, ubatch_tokens=1)


def prefill(prompt_tokens: int, ubatch_tokens: int) -> Workload:
    """A prompt from an empty cache."""
    return Workload(new_tokens=prompt_tokens, past_tokens=0, ubatch_tokens=ubatch_tokens)


def operators(
    geometry: ModelGeometry, weight_bytes: Mapping[str, int], kv_type: KvType, work: Workload
) -> tuple[Operator, ...]:
    """All operators of `work`. `weight_bytes` has the roles of `ModelFacts.weight_bytes`; without a `head` the
    embedding matrix serves as one (tied weights). Only the last token of a prompt passes the head."""
    tokens, layers, width = work.new_tokens, geometry.layers, geometry.embedding_length
    kv_heads = sum(geometry.kv_heads_by_layer)
    queries = layers * geometry.heads * geometry.key_length
    keys_values = kv_heads * (geometry.key_length + geometry.value_length)
    attended = layers * geometry.heads * geometry.value_length
    normed = (2 * layers + 1) * width
    embedding = weight_bytes.get("embedding", 0)

    def weights(role: str) -> float:
        return work.passes * weight_bytes.get(role, 0)

    def activations(elements_per_token: float) -> float:
        return _ACTIVATION_BYTES * tokens * elements_per_token

    return (
        Operator("embedding", 0.0, tokens * embedding / geometry.vocabulary_tokens + activations(width)),
        Operator("norm", _NORM_FLOPS_PER_ELEMENT * tokens * normed, weights("other") + activations(2 * normed)),
        Operator(
            "qkv",
            2.0 * tokens * width * (queries + keys_values),
            weights("qkv") + activations(layers * width + queries + keys_values),
        ),
        Operator(
            "rope",
            _ROPE_FLOPS_PER_ELEMENT * tokens * (queries + kv_heads * geometry.key_length),
            activations(2 * (queries + kv_heads * geometry.key_length)),
        ),
        _attention(geometry, kv_type, work, activations(queries + attended)),
        Operator(
            "attention_output",
            2.0 * tokens * attended * width,
            weights("attention_output") + activations(attended + layers * width),
        ),
        Operator(
            "feed_forward",
            2.0 * tokens * layers * 3 * width * geometry.feed_forward_length,
            weights("feed_forward") + activations(layers * (2 * width + 3 * geometry.feed_forward_length)),
        ),
        Operator(
            "head",
            2.0 * width * geometry.vocabulary_tokens,
            weight_bytes.get("head", embedding) + _ACTIVATION_BYTES * (width + geometry.vocabulary_tokens),
        ),
    )


def _attention(geometry: ModelGeometry, kv_type: KvType, work: Workload, activation_bytes: float) -> Operator:
    """Scores and weighted values. Each micro-batch reads the cache once up to its own end."""
    head_flops = 2 * (geometry.key_length + geometry.value_length) + _SOFTMAX_FLOPS_PER_SCORE
    mean_length = work.past_tokens + (work.new_tokens + 1) / 2
    cells_read = work.passes * mean_length if work.passes > 1 else work.past_tokens + work.new_tokens
    cache_bytes = kv_bytes_per_token(geometry, kv_type) * (cells_read + work.new_tokens)
    return Operator(
        "attention",
        float(geometry.layers * geometry.heads * head_flops) * work.positions,
        cache_bytes + activation_bytes,
    )
