"""Reads the shape of a decoder-only transformer from its `config.json`: parameters, and what one token keeps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from shared.errors import ModelCorrupt, UnsupportedArchitecture

_LLAMA_LIKE = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Families whose parameters are counted here: gated feed-forward, RMS norm, grouped-query attention."""
_BIASED_QKV = frozenset({"qwen2"})
_NORMED_HEADS = frozenset({"qwen3"})


Size = Annotated[int, Field(ge=1, le=100_000_000)]
"""A dimension of a model: wide enough for any, and far from what no arithmetic holds."""


class _Config(BaseModel):
    """The fields of a `config.json` that say how large a model is."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model_type: str
    vocab_size: Size
    hidden_size: Size
    intermediate_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    max_position_embeddings: Size
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    sliding_window: int | None = None
    use_sliding_window: bool | None = None

    @model_validator(mode="after")
    def _heads_divide(self) -> _Config:
        if self.head_dim is None and self.hidden_size % self.num_attention_heads:
            raise ValueError("hidden_size is not a multiple of num_attention_heads")
        if self.num_key_value_heads and self.num_attention_heads % self.num_key_value_heads:
            raise ValueError("num_attention_heads is not a multiple of num_key_value_heads")
        return self


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape of one model. Counts are of the whole model, before it is split over GPUs."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_length: int
    feed_forward: int
    vocabulary: int
    trained_context_tokens: int
    parameters: int
    lookup_parameters: int
    """Parameters of the input embedding alone: looked up, not multiplied (0 where it is also the output matrix)."""

    def kv_elements_per_token(self) -> int:
        """Elements that one token keeps in all layers: a key and a value for each KV head."""
        return 2 * self.layers * self.kv_heads * self.head_length

    @property
    def multiplied_parameters(self) -> int:
        """Parameters that take part in the matrix products of every token."""
        return self.parameters - self.lookup_parameters


def geometry_of(document: dict[str, Any]) -> Geometry:
    """The geometry in a `config.json`.

    Raises:
        UnsupportedArchitecture: another family than those counted here, or attention within a window.
        ModelCorrupt: a field is missing or out of range.
    """
    family = document.get("model_type")
    if not isinstance(family, str) or family not in _LLAMA_LIKE:
        raise UnsupportedArchitecture(f"Models are planned of these families: {', '.join(sorted(_LLAMA_LIKE))}.")
    try:
        config = _Config.model_validate(document)
    except ValidationError as error:
        field = ".".join(str(part) for part in error.errors()[0]["loc"]) or "config.json"
        raise ModelCorrupt("The model's config.json cannot be used.", param=field) from None
    if config.sliding_window is not None and config.use_sliding_window is not False:
        raise UnsupportedArchitecture("Models whose attention sees a window only are not planned.")
    kv_heads = config.num_key_value_heads or config.num_attention_heads
    head_length = config.head_dim or config.hidden_size // config.num_attention_heads
    embedding = config.vocab_size * config.hidden_size
    return Geometry(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=kv_heads,
        head_length=head_length,
        feed_forward=config.intermediate_size,
        vocabulary=config.vocab_size,
        trained_context_tokens=config.max_position_embeddings,
        parameters=_parameters(config, kv_heads, head_length, embedding),
        lookup_parameters=0 if config.tie_word_embeddings else embedding,
    )


def _parameters(config: _Config, kv_heads: int, head_length: int, embedding: int) -> int:
    query, keys = config.num_attention_heads * head_length, kv_heads * head_length
    attention = config.hidden_size * (query + 2 * keys) + query * config.hidden_size
    if config.attention_bias or config.model_type in _BIASED_QKV:
        attention += query + 2 * keys
    if config.attention_bias:
        attention += config.hidden_size
    if config.model_type in _NORMED_HEADS:
        attention += 2 * head_length
    feed_forward = 3 * config.hidden_size * config.intermediate_size
    if config.mlp_bias:
        feed_forward += 2 * config.intermediate_size + config.hidden_size
    norms = 2 * config.hidden_size
    tables = embedding if config.tie_word_embeddings else 2 * embedding
    return config.num_hidden_layers * (attention + feed_forward + norms) + tables + config.hidden_size


def can_split(geometry: Geometry, gpus: int) -> bool:
    """Whether tensor parallelism can cut this model into `gpus` equal parts, KV heads being repeated if need be."""
    kv_fits = geometry.kv_heads % gpus == 0 or gpus % geometry.kv_heads == 0
    return geometry.heads % gpus == 0 and kv_fits and geometry.feed_forward % gpus == 0


def kv_heads_of_one(geometry: Geometry, gpus: int) -> int:
    """KV heads that each of `gpus` holds: at least one, so beyond `kv_heads` they are repeated."""
    return math.ceil(geometry.kv_heads / gpus)
