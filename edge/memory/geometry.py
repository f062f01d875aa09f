"""Reads a model's dimensions from GGUF metadata and refuses those that no engine survives.

Names and fallbacks follow the GGUF specification (ggml, docs/gguf.md): keys are `{architecture}.…`; without an
explicit `attention.key_length` the head size is `embedding_length / attention.head_count`; without
`attention.head_count_kv` every head has its own keys and values. Which layers attend to a window alone follows the
engine (llama.cpp, `set_swa_pattern`) where it knows the architecture; elsewhere every layer counts in full, which is
the upper bound, and a finding says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shared.errors import ModelCorrupt, UnsupportedArchitecture

# Far above any published model, or what the engine aborts beyond: it has tables for 512 layers (LLAMA_MAX_LAYERS), and
# survives neither a block count nor a context of 0.
_LIMITS = {
    "block_count": 512,
    "context_length": 1 << 24,
    "embedding_length": 1 << 18,
    "feed_forward_length": 1 << 20,
    "attention.head_count": 4096,
    "attention.head_count_kv": 4096,
    "attention.key_length": 8192,
    "attention.value_length": 8192,
    "attention.key_length_swa": 8192,
    "attention.value_length_swa": 8192,
    "attention.kv_lora_rank": 1 << 16,
    "attention.sliding_window": 1 << 24,
    "expert_feed_forward_length": 1 << 20,
    "expert_count": 4096,
    "expert_shared_count": 4096,
    "rope.dimension_count": 8192,
    "vocab_size": 1 << 22,
}

# One layer in so many attends to everything, the last of each group; the others to the window.
_WINDOW_GROUPS = {"gemma2": 2, "gemma3": 6, "gemma3n": 5, "cohere2": 4, "gpt-oss": 2}
_GROUP_LIMIT = 64

# These keep a state that grows with no token, beside or instead of keys and values: the arithmetic here is not theirs.
_RECURRENT = frozenset(
    {"falcon-h1", "granitehybrid", "jamba", "kimi-linear", "lfm2", "lfm2moe", "mamba", "mamba2", "nemotron_h",
     "nemotron_h_moe", "plamo2", "qwen35", "qwen35moe", "qwen3next", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"}
)  # fmt: skip
_RECURRENT_KEYS = (".ssm.", ".wkv.", ".shortconv.", ".linear_attention.")
_LAYERS_WITHOUT_CACHE = frozenset({"deci"})
_ENCODERS = frozenset(
    {"bert", "jina-bert-v2", "jina-bert-v3", "modern-bert", "nomic-bert", "nomic-bert-moe", "t5encoder"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelGeometry:
    """Dimensions of a decoder. Lengths count elements; `kv_heads_by_layer` has one entry a layer.

    `windowed_by_layer` says which layers keep the last `window_tokens` alone; empty when none does. `findings` name
    what was counted as an upper bound.
    """

    architecture: str
    embedding_length: int
    feed_forward_length: int
    heads: int
    kv_heads_by_layer: tuple[int, ...]
    key_length: int
    value_length: int
    vocabulary_tokens: int
    trained_context_tokens: int
    window_tokens: int | None = None
    windowed_by_layer: tuple[bool, ...] = ()
    findings: tuple[str, ...] = ()

    @property
    def layers(self) -> int:
        """Number of decoder blocks."""
        return len(self.kv_heads_by_layer)

    @property
    def windowed_kv_heads(self) -> int:
        """KV heads of the layers that keep a window alone, summed."""
        pairs = zip(self.kv_heads_by_layer, self.windowed_by_layer, strict=False)
        return sum(heads for heads, windowed in pairs if windowed)


def geometry_of(metadata: Mapping[str, object], *, vocabulary_tokens: int | None = None) -> ModelGeometry:
    """The geometry that `metadata` (GGUF key to scalar, or tuple for an array) states.

    `vocabulary_tokens` is the length of the token list, for headers without `vocab_size`.

    Raises:
        ModelCorrupt: a needed key is missing, of the wrong type, or out of range; `param` is the key.
        UnsupportedArchitecture: the model keeps a recurrent state, or no cache of keys and values at all.
    """
    architecture = str(metadata.get("general.architecture", ""))
    _require_attention(metadata, architecture)
    read = _Reader(metadata, architecture)
    layers = read.integer("block_count")
    embedding = read.integer("embedding_length")
    heads_by_layer = read.per_layer("attention.head_count", layers)
    if not any(heads_by_layer):
        raise read.corrupt("attention.head_count", "is 0 in every layer")
    kv_heads = _kv_heads(read, layers, heads_by_layer)
    _require_cache(read, architecture, heads_by_layer, kv_heads)
    window = _window(read, architecture, layers)
    # Where layers differ the smallest number of heads gives the largest head, which is the upper bound.
    head_length = embedding // min(heads for heads in heads_by_layer if heads)
    expert_columns = read.integer("expert_feed_forward_length") if read.has("expert_feed_forward_length") else None
    columns = None if expert_columns is None else (expert_columns,) * layers
    latent = _latent_key_length(read, kv_heads)
    return ModelGeometry(
        architecture=architecture,
        embedding_length=embedding,
        feed_forward_length=max(1, *read.per_layer("feed_forward_length", layers, default=columns)),
        heads=max(heads_by_layer),
        kv_heads_by_layer=kv_heads,
        key_length=max(read.length("key_length", default=head_length), latent),
        value_length=read.length("value_length", default=head_length),
        vocabulary_tokens=vocabulary_tokens or read.integer("vocab_size"),
        trained_context_tokens=read.integer("context_length"),
        window_tokens=window.tokens,
        windowed_by_layer=window.by_layer,
        findings=(*window.findings, *(("latent_attention_in_full",) if latent else ())),
    )


def _kv_heads(read: _Reader, layers: int, heads_by_layer: tuple[int, ...]) -> tuple[int, ...]:
    """Heads of keys and values; 0 for all is what a model states that keeps something else in every layer."""
    name = "attention.head_count_kv"
    return (0,) * layers if read.value(name) == 0 else read.per_layer(name, layers, default=heads_by_layer)


def _require_cache(
    read: _Reader, architecture: str, heads_by_layer: tuple[int, ...], kv_heads: tuple[int, ...]
) -> None:
    """Layers without keys and values keep nothing in one architecture; in any other, what they keep is not known."""
    if not any(kv_heads) or (0 in kv_heads and architecture not in _LAYERS_WITHOUT_CACHE):
        raise UnsupportedArchitecture(
            f"{architecture[:64]!r} has layers without keys and values; no memory can be promised for what they keep.",
            param=f"{architecture}.attention.head_count_kv",
        )
    if any(kv and own % kv for own, kv in zip(heads_by_layer, kv_heads, strict=True)):
        raise read.corrupt("attention.head_count_kv", "does not divide the number of heads")


def _latent_key_length(read: _Reader, kv_heads: tuple[int, ...]) -> int:
    """Key elements that latent attention keeps for a token, spread over the heads that it is stored in; 0 without it.

    Source: llama.cpp, `deepseek2`: one row of `kv_lora_rank` and the rotated dimensions.
    """
    if not read.has("attention.kv_lora_rank"):
        return 0
    row = read.integer("attention.kv_lora_rank")
    row += read.integer("rope.dimension_count") if read.has("rope.dimension_count") else 0
    return -(-row // min(heads for heads in kv_heads if heads))


def expert_columns(metadata: Mapping[str, object], geometry: ModelGeometry) -> int:
    """Columns of all experts of a layer together, those of a layer without experts where there are none.

    Raises:
        ModelCorrupt: a number of experts is out of range.
    """
    read = _Reader(metadata, geometry.architecture)
    if not read.has("expert_count") or read.value("expert_count") == 0:
        return geometry.feed_forward_length
    each = geometry.feed_forward_length
    if read.has("expert_feed_forward_length"):
        each = read.integer("expert_feed_forward_length")
    shared = read.integer("expert_shared_count") if read.value("expert_shared_count") else 0
    return max(geometry.feed_forward_length, (read.integer("expert_count") + shared) * each)


@dataclass(frozen=True, slots=True)
class _Window:
    tokens: int | None = None
    by_layer: tuple[bool, ...] = ()
    findings: tuple[str, ...] = ()


def _require_attention(metadata: Mapping[str, object], architecture: str) -> None:
    if architecture in _RECURRENT or any(part in key for key in metadata for part in _RECURRENT_KEYS):
        raise UnsupportedArchitecture(
            f"{architecture[:64]!r} keeps a recurrent state, for which no memory can be promised.",
            param="general.architecture",
        )
    if architecture in _ENCODERS or metadata.get(f"{architecture}.attention.causal") is False:
        raise UnsupportedArchitecture(
            f"{architecture[:64]!r} is an encoder; it generates no text.", param="general.architecture"
        )


def _window(read: _Reader, architecture: str, layers: int) -> _Window:
    """The layers that keep a window alone, as the engine allocates them."""
    if not read.has("attention.sliding_window") or read.value("attention.sliding_window") == 0:
        return _Window()
    group = _WINDOW_GROUPS.get(architecture)
    if group is None:
        return _Window(findings=("sliding_window_in_full",))
    tokens = read.integer("attention.sliding_window")
    stated = read.value("attention.sliding_window_pattern")
    if isinstance(stated, int) and not isinstance(stated, bool) and 1 <= stated <= _GROUP_LIMIT:
        group = stated
    elif isinstance(stated, tuple) and len(stated) == layers:
        return _Window(tokens, tuple(bool(entry) for entry in stated))
    elif stated is not None:
        return _Window(findings=("sliding_window_in_full",))
    return _Window(tokens, tuple(layer % group < group - 1 for layer in range(layers)))


class _Reader:
    """Typed, bounded access to the keys of one architecture."""

    def __init__(self, metadata: Mapping[str, object], architecture: str) -> None:
        self._metadata = metadata
        self._architecture = architecture

    def corrupt(self, name: str, what: str) -> ModelCorrupt:
        key = f"{self._architecture}.{name}"
        return ModelCorrupt(f"The header's {key} {what}.", param=key)

    def has(self, name: str) -> bool:
        return f"{self._architecture}.{name}" in self._metadata

    def value(self, name: str) -> object:
        return self._metadata.get(f"{self._architecture}.{name}")

    def length(self, name: str, *, default: int) -> int:
        """The length of a head; where layers with a window have another one, the larger of the two."""
        stated = self.integer(f"attention.{name}", default=default)
        windowed = f"attention.{name}_swa"
        return max(stated, self.integer(windowed)) if self.has(windowed) else stated

    def integer(self, name: str, *, default: int | None = None) -> int:
        value = self._metadata.get(f"{self._architecture}.{name}", default)
        return self._checked(name, value)

    def per_layer(self, name: str, layers: int, *, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        value = self._metadata.get(f"{self._architecture}.{name}", default)
        if not isinstance(value, tuple):
            return (self._checked(name, value),) * layers
        if len(value) != layers:
            raise self.corrupt(name, f"has {len(value)} entries for {layers} layers")
        # 0 in one layer of many: that layer has no such part.
        return tuple(0 if entry is not False and entry == 0 else self._checked(name, entry) for entry in value)

    def _checked(self, name: str, value: object) -> int:
        if value is None:
            raise self.corrupt(name, "is missing")
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.corrupt(name, "is not an integer")
        if not 1 <= value <= _LIMITS[name]:
            raise self.corrupt(name, f"is {value}; it must be between 1 and {_LIMITS[name]}")
        return value
