"""Counts a model's parameters by part: from its tensor descriptions, or from its dimensions where there are none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from edge.memory.geometry import ModelGeometry

_BLOCK = re.compile(r"^blk\.(\d+)\.")
_EMBEDDING = "token_embd.weight"
_HEAD = "output.weight"
_HEAD_NORMS = frozenset({"gemma3", "olmo2", "qwen3", "qwen3moe"})
"""Architectures that normalise queries and keys of each head."""


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """Parameters of each part. `head` is 0 where the embedding serves as the output matrix (tied)."""

    embedding: int
    by_layer: tuple[int, ...]
    head: int
    other: int

    @property
    def tied(self) -> bool:
        """Whether embedding and output share one matrix."""
        return self.head == 0

    @property
    def layers(self) -> int:
        """Parameters of all decoder blocks."""
        return sum(self.by_layer)

    @property
    def total(self) -> int:
        """All parameters."""
        return self.embedding + self.layers + self.head + self.other


def counted(tensors: Iterable[tuple[str, int]], layers: int) -> ParameterCounts:
    """Counts from tensor names and numbers of elements."""
    embedding = head = other = 0
    by_layer = [0] * layers
    for name, elements in tensors:
        block = _BLOCK.match(name)
        if block is not None and int(block[1]) < layers:
            by_layer[int(block[1])] += elements
        elif name == _EMBEDDING:
            embedding += elements
        elif name == _HEAD:
            head += elements
        else:
            other += elements
    return ParameterCounts(embedding, tuple(by_layer), head, other)


def derived(geometry: ModelGeometry, *, feed_forward_columns: int | None = None) -> ParameterCounts:
    """Counts of a gated decoder with these dimensions, tied, for a file that describes no tensors.

    `feed_forward_columns` are those of all experts of a layer together (default: of the one feed-forward part).

    Per layer: queries and their output (heads x head size x width), keys and values (KV heads), three matrices of the
    feed-forward part (gate, up, down), two norms, and one norm of a head's size for queries and keys where used.
    """
    width = geometry.embedding_length
    attention = width * geometry.heads * (geometry.key_length + geometry.value_length)
    norms = 2 * width + (2 * geometry.key_length if geometry.architecture in _HEAD_NORMS else 0)
    columns = feed_forward_columns or geometry.feed_forward_length
    fixed = attention + 3 * width * columns + norms
    per_kv_head = width * (geometry.key_length + geometry.value_length)
    return ParameterCounts(
        embedding=geometry.vocabulary_tokens * width,
        by_layer=tuple(fixed + per_kv_head * kv_heads for kv_heads in geometry.kv_heads_by_layer),
        head=0,
        other=width,
    )
