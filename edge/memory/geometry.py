"""Reads a model's dimensions from GGUF metadata and refuses those that no engine survives.

Names and fallbacks follow the GGUF specification (ggml, docs/gguf.md): keys are `{architecture}.…`; without an
explicit `attention.key_length` the head size is `embedding_length / attention.head_count`; without
`attention.head_count_kv` every head has its own keys and values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shared.errors import ModelCorrupt

# Far above any published model; a block count of 0 or 2**31 and a context of 0 abort the engine natively.
_LIMITS = {
    "block_count": 1024,
    "context_length": 1 << 24,
    "embedding_length": 1 << 18,
    "feed_forward_length": 1 << 20,
    "attention.head_count": 4096,
    "attention.head_count_kv": 4096,
    "attention.key_length": 8192,
    "attention.value_length": 8192,
    "vocab_size": 1 << 22,
}


@dataclass(frozen=True, slots=True)
class ModelGeometry:
    """Dimensions of a decoder. Lengths count elements; `kv_heads_by_layer` has one entry a layer."""

    architecture: str
    embedding_length: int
    feed_forward_length: int
    heads: int
    kv_heads_by_layer: tuple[int, ...]
    key_length: int
    value_length: int
    vocabulary_tokens: int
    trained_context_tokens: int

    @property
    def layers(self) -> int:
        """Number of decoder blocks."""
        return len(self.kv_heads_by_layer)


def geometry_of(metadata: Mapping[str, object], *, vocabulary_tokens: int | None = None) -> ModelGeometry:
    """The geometry that `metadata` (GGUF key to scalar, or tuple for an array) states.

    `vocabulary_tokens` is the length of the token list, for headers without `vocab_size`.

    Raises:
        ModelCorrupt: a needed key is missing, of the wrong type, or out of range; `param` is the key.
    """
    architecture = str(metadata.get("general.architecture", ""))
    read = _Reader(metadata, architecture)
    layers = read.integer("block_count")
    embedding = read.integer("embedding_length")
    heads_by_layer = read.per_layer("attention.head_count", layers)
    heads = max(heads_by_layer)
    kv_heads = read.per_layer("attention.head_count_kv", layers, default=heads_by_layer)
    if any(own % kv for own, kv in zip(heads_by_layer, kv_heads, strict=True)):
        raise read.corrupt("attention.head_count_kv", "does not divide the number of heads")
    return ModelGeometry(
        architecture=architecture,
        embedding_length=embedding,
        feed_forward_length=max(read.per_layer("feed_forward_length", layers)),
        heads=heads,
        kv_heads_by_layer=kv_heads,
        key_length=read.integer("attention.key_length", default=embedding // heads),
        value_length=read.integer("attention.value_length", default=embedding // heads),
        vocabulary_tokens=vocabulary_tokens or read.integer("vocab_size"),
        trained_context_tokens=read.integer("context_length"),
    )


class _Reader:
    """Typed, bounded access to the keys of one architecture."""

    def __init__(self, metadata: Mapping[str, object], architecture: str) -> None:
        self._metadata = metadata
        self._architecture = architecture

    def corrupt(self, name: str, what: str) -> ModelCorrupt:
        key = f"{self._architecture}.{name}"
        return ModelCorrupt(f"The header's {key} {what}.", param=key)

    def integer(self, name: str, *, default: int | None = None) -> int:
        value = self._metadata.get(f"{self._architecture}.{name}", default)
        return self._checked(name, value)

    def per_layer(self, name: str, layers: int, *, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        value = self._metadata.get(f"{self._architecture}.{name}", default)
        if not isinstance(value, tuple):
            return (self._checked(name, value),) * layers
        if len(value) != layers:
            raise self.corrupt(name, f"has {len(value)} entries for {layers} layers")
        return tuple(self._checked(name, entry) for entry in value)

    def _checked(self, name: str, value: object) -> int:
        if value is None:
            raise self.corrupt(name, "is missing")
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.corrupt(name, "is not an integer")
        if not 1 <= value <= _LIMITS[name]:
            raise self.corrupt(name, f"is {value}; it must be between 1 and {_LIMITS[name]}")
        return value
