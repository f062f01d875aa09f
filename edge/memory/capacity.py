"""Decides the context that a device has room for, or says how many bytes are missing.

Red line: weights + KV + runtime + compute + prompt cache + draft + adapters + reserve <= available. The sizes of
runtime and compute buffers are upper fits to measurements of the engine (memory after load and after a prompt of
several micro-batches, for vocabularies of 49,152 and 262,144 tokens and micro-batches of 63 to 2,048);
docs/explanation/memory.md has the table of prediction against truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edge.memory.geometry import ModelGeometry
from edge.memory.kv import (
    CELL_ALIGNMENT_TOKENS,
    CacheElement,
    CacheShape,
    KvType,
    aligned_tokens,
    cache_bytes,
)
from shared.errors import InsufficientMemory, SettingsError

MIB = 1 << 20
_RUNTIME_BYTES = 36 * MIB
_CODE_BYTES = 20 * MIB
"""Pages of interpreter and engine libraries that are resident while it serves."""
_RUNTIME_BYTES_PER_VOCABULARY_TOKEN = 192
_COMPUTE_FLOATS_PER_EMBEDDING = 8
_COMPUTE_FLOATS_PER_FEED_FORWARD = 4
_MASK_BYTES_PER_CELL = 6
"""Attention mask: 32-bit as it is filled, 16-bit as flash attention reads it (llama.cpp, `build_attn_inp_kv`)."""
_LOGIT_BYTES = 4
_ADAPTER_COPY_PERCENT = 125
"""An adapter takes a quarter more than its file (measured: 1.3 MiB for 1.06)."""
_ADAPTER_ELEMENT_BYTES = 2


@dataclass(frozen=True, slots=True)
class Budget:
    """What there is and what is spoken for. `available_bytes` is free now, before the weights are mapped."""

    available_bytes: int
    weights_bytes: int
    reserve_bytes: int
    prompt_cache_bytes: int = 0
    adapters_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Draft:
    """A second, small model in the same process; it has a cache of the same slots and context."""

    geometry: ModelGeometry
    weights_bytes: int


@dataclass(frozen=True, slots=True)
class Demand:
    """What the operator asks of the plan. `context_tokens` is per slot; None asks for the largest that fits."""

    slots: int
    kv_type: KvType
    ubatch_tokens: int
    minimum_context_tokens: int
    context_tokens: int | None = None
    maximum_context_tokens: int | None = None
    draft: Draft | None = None


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """A context with every share of the memory that it takes; `context_tokens` is per slot."""

    context_tokens: int
    slots: int
    kv_type: KvType | CacheElement
    weights_bytes: int
    kv_bytes: int
    overhead_bytes: int
    reserve_bytes: int
    draft_bytes: int = 0
    adapters_bytes: int = 0

    @property
    def lines(self) -> tuple[tuple[str, int], ...]:
        """Each share by name; together they are `total_bytes`."""
        return (
            ("weights", self.weights_bytes),
            ("kv", self.kv_bytes),
            ("runtime_and_compute", self.overhead_bytes),
            ("draft", self.draft_bytes),
            ("adapters", self.adapters_bytes),
            ("reserve", self.reserve_bytes),
        )

    @property
    def total_bytes(self) -> int:
        """All shares together, the reserve included."""
        return sum(size_bytes for _, size_bytes in self.lines)

    @property
    def engine_bytes(self) -> int:
        """What the engine process itself takes: all but the reserve."""
        return self.total_bytes - self.reserve_bytes


def overhead_bytes(geometry: ModelGeometry, ubatch_tokens: int, *, context_tokens: int = 0, slots: int = 1) -> int:
    """Runtime, code, vocabulary tables and compute buffers of one engine process: an upper estimate."""
    floats = (
        _COMPUTE_FLOATS_PER_EMBEDDING * geometry.embedding_length
        + _COMPUTE_FLOATS_PER_FEED_FORWARD * geometry.feed_forward_length
    )
    vocabulary = (_RUNTIME_BYTES_PER_VOCABULARY_TOKEN + _LOGIT_BYTES * slots) * geometry.vocabulary_tokens
    mask = _MASK_BYTES_PER_CELL * aligned_tokens(context_tokens) * ubatch_tokens
    return _RUNTIME_BYTES + _CODE_BYTES + vocabulary + 4 * floats * ubatch_tokens + mask


def adapter_bytes(geometry: ModelGeometry, rank: int) -> int:
    """Memory of one 16-bit adapter of that rank on every matrix of every layer: two thin matrices for each."""
    width, key, value = geometry.embedding_length, geometry.key_length, geometry.value_length
    attention = (width + geometry.heads * key) + (geometry.heads * value + width)
    feed_forward = 3 * (width + geometry.feed_forward_length)
    sides = geometry.layers * (attention + feed_forward + 2 * width) + sum(geometry.kv_heads_by_layer) * (key + value)
    return loaded_bytes(rank * sides * _ADAPTER_ELEMENT_BYTES)


def loaded_bytes(adapter_file_bytes: int) -> int:
    """Memory of an adapter, or of several, whose files have that many bytes."""
    return adapter_file_bytes * _ADAPTER_COPY_PERCENT // 100


def plan_of(geometry: ModelGeometry, budget: Budget, demand: Demand, context_tokens: int) -> CapacityPlan:
    """The shares of a context of `context_tokens` per slot, whether they fit or not."""
    shape = CacheShape(demand.slots, context_tokens, demand.ubatch_tokens)
    draft = demand.draft
    return CapacityPlan(
        context_tokens=context_tokens,
        slots=demand.slots,
        kv_type=demand.kv_type,
        weights_bytes=budget.weights_bytes,
        kv_bytes=cache_bytes(geometry, shape, demand.kv_type),
        overhead_bytes=_overhead(geometry, shape) + budget.prompt_cache_bytes,
        reserve_bytes=budget.reserve_bytes,
        draft_bytes=0 if draft is None else _draft_bytes(draft, shape),
        adapters_bytes=budget.adapters_bytes,
    )


def fitting_context_tokens(geometry: ModelGeometry, budget: Budget, demand: Demand) -> int:
    """The largest context per slot, in whole allocation units, that the budget holds; 0 if none does.

    At most one unit above what the model was trained for, so that the answer is finite.
    """
    most_units = aligned_tokens(geometry.trained_context_tokens) // CELL_ALIGNMENT_TOKENS
    return CELL_ALIGNMENT_TOKENS * _largest(
        most_units,
        lambda units: (
            plan_of(geometry, budget, demand, units * CELL_ALIGNMENT_TOKENS).total_bytes <= budget.available_bytes
        ),
    )


def plan_capacity(geometry: ModelGeometry, budget: Budget, demand: Demand) -> CapacityPlan:
    """The context asked for, or the largest between the minimum and what model and budget allow.

    Raises:
        InsufficientMemory: the context asked for, or the minimum, does not fit; names needed and free bytes.
        SettingsError: the context asked for is longer than the model was trained for.
    """
    trained = geometry.trained_context_tokens
    asked = demand.context_tokens
    if asked is not None and asked > trained:
        raise SettingsError(
            f"A context of {asked} tokens was asked for; this model was trained for {trained}.", param="context_tokens"
        )
    fitting = fitting_context_tokens(geometry, budget, demand)
    least = asked if asked is not None else min(demand.minimum_context_tokens, trained)
    if fitting < aligned_tokens(least):
        raise _insufficient(geometry, budget, demand, least)
    if asked is not None:
        return plan_of(geometry, budget, demand, asked)
    return plan_of(geometry, budget, demand, min(fitting, trained, demand.maximum_context_tokens or trained))


def _overhead(geometry: ModelGeometry, shape: CacheShape) -> int:
    return overhead_bytes(geometry, shape.ubatch_tokens, context_tokens=shape.context_tokens, slots=shape.slots)


def _draft_bytes(draft: Draft, shape: CacheShape) -> int:
    """Weights, cache and buffers of the draft; code and interpreter are there already."""
    own = _overhead(draft.geometry, shape) - _CODE_BYTES
    return draft.weights_bytes + cache_bytes(draft.geometry, shape, KvType.F16) + own


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number from 1 to `most` that fits, where smaller ones fit too; 0 if none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _insufficient(geometry: ModelGeometry, budget: Budget, demand: Demand, tokens: int) -> InsufficientMemory:
    needed = plan_of(geometry, budget, demand, tokens).total_bytes
    return InsufficientMemory(
        f"A context of {tokens} tokens in {demand.slots} slot(s) needs {needed} bytes of memory "
        f"(weights {budget.weights_bytes}, reserve {budget.reserve_bytes}); {budget.available_bytes} bytes are free.",
        needed_bytes=needed,
        free_bytes=budget.available_bytes,
    )
