"""Decides the context that a device has room for, or says how many bytes are missing.

Red line: weights + KV + runtime + compute + prompt cache + reserve <= available. The sizes of runtime and compute
buffers are upper fits to measurements of the engine (anonymous memory after load and after a long prompt, for
vocabularies of 49,152 and 262,144 tokens and micro-batches of 128 to 2,048): both are affine within 2 MiB.
"""

from __future__ import annotations

from dataclasses import dataclass

from edge.memory.geometry import ModelGeometry
from edge.memory.kv import CELL_ALIGNMENT_TOKENS, KvType, aligned_tokens, kv_bytes, kv_bytes_per_token
from shared.errors import InsufficientMemory, SettingsError

MIB = 1 << 20
_RUNTIME_BYTES = 36 * MIB
_RUNTIME_BYTES_PER_VOCABULARY_TOKEN = 192
_COMPUTE_FLOATS_PER_EMBEDDING = 8
_COMPUTE_FLOATS_PER_FEED_FORWARD = 4


@dataclass(frozen=True, slots=True)
class Budget:
    """What there is and what is spoken for. `available_bytes` is free now, before the weights are mapped."""

    available_bytes: int
    weights_bytes: int
    reserve_bytes: int
    prompt_cache_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Demand:
    """What the operator asks of the plan. `context_tokens` is per slot; None asks for the largest that fits."""

    slots: int
    kv_type: KvType
    ubatch_tokens: int
    minimum_context_tokens: int
    context_tokens: int | None = None
    maximum_context_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """A context that fits, with every share of the memory that it takes."""

    context_tokens: int
    slots: int
    kv_type: KvType
    weights_bytes: int
    kv_bytes: int
    overhead_bytes: int
    reserve_bytes: int

    @property
    def total_bytes(self) -> int:
        """All shares together, the reserve included."""
        return self.weights_bytes + self.kv_bytes + self.overhead_bytes + self.reserve_bytes


def overhead_bytes(geometry: ModelGeometry, ubatch_tokens: int) -> int:
    """Runtime, vocabulary tables and compute buffers of one engine process: an upper estimate."""
    floats = (
        _COMPUTE_FLOATS_PER_EMBEDDING * geometry.embedding_length
        + _COMPUTE_FLOATS_PER_FEED_FORWARD * geometry.feed_forward_length
    )
    vocabulary = _RUNTIME_BYTES_PER_VOCABULARY_TOKEN * geometry.vocabulary_tokens
    return _RUNTIME_BYTES + vocabulary + 4 * floats * ubatch_tokens


def fitting_context_tokens(geometry: ModelGeometry, budget: Budget, demand: Demand) -> int:
    """The largest context per slot, in whole allocation units, that the budget holds; 0 if none does."""
    fixed = budget.weights_bytes + budget.reserve_bytes + budget.prompt_cache_bytes
    left = budget.available_bytes - fixed - overhead_bytes(geometry, demand.ubatch_tokens)
    per_slot = left // (demand.slots * kv_bytes_per_token(geometry, demand.kv_type))
    return max(0, per_slot // CELL_ALIGNMENT_TOKENS * CELL_ALIGNMENT_TOKENS)


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
        return _plan(geometry, budget, demand, asked)
    return _plan(geometry, budget, demand, min(fitting, trained, demand.maximum_context_tokens or trained))


def _plan(geometry: ModelGeometry, budget: Budget, demand: Demand, context_tokens: int) -> CapacityPlan:
    return CapacityPlan(
        context_tokens=context_tokens,
        slots=demand.slots,
        kv_type=demand.kv_type,
        weights_bytes=budget.weights_bytes,
        kv_bytes=kv_bytes(geometry, demand.slots * aligned_tokens(context_tokens), demand.kv_type),
        overhead_bytes=overhead_bytes(geometry, demand.ubatch_tokens) + budget.prompt_cache_bytes,
        reserve_bytes=budget.reserve_bytes,
    )


def _insufficient(geometry: ModelGeometry, budget: Budget, demand: Demand, tokens: int) -> InsufficientMemory:
    needed = _plan(geometry, budget, demand, tokens).total_bytes
    return InsufficientMemory(
        f"A context of {tokens} tokens in {demand.slots} slot(s) needs {needed} bytes of memory "
        f"(weights {budget.weights_bytes}, reserve {budget.reserve_bytes}); {budget.available_bytes} bytes are free.",
        needed_bytes=needed,
        free_bytes=budget.available_bytes,
    )
