"""Decides what replicas of a model on a GPU can hold and promise: weights, KV blocks, sequences, times, rates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cloud.sizing.geometry import Geometry, can_split, kv_heads_of_one
from cloud.sizing.gpus import Gpu
from cloud.sizing.roofline import Load, decode_ms, prefill_ms
from shared.errors import ContextLengthExceeded, InsufficientMemory, InvalidRequest

WeightType = Literal["bf16", "fp8", "int4"]
KvType = Literal["auto", "fp8"]
_MATRIX_BYTES: dict[WeightType, float] = {"bf16": 2.0, "fp8": 1.0, "int4": 0.5 + 2.5 / 128}
"""Bytes of one element. int4 has a 16-bit scale and a 4-bit zero point for each group of 128 (AWQ, GPTQ)."""
_PLAIN_BYTES = 2
"""Tables and norms stay in 16 bits whatever the matrices are."""
_KV_BYTES: dict[KvType, int] = {"auto": 2, "fp8": 1}
BLOCK_TOKENS = 16
"""vLLM's block on GPUs (Kwon et al., "PagedAttention", SOSP 2023)."""
CPU_BLOCK_TOKENS = 128
RUNTIME_BYTES = 1536 * 1024 * 1024
"""CUDA context, communicator and captured graphs: an estimate, for it is known only once the engine runs."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of each replica, and the targets it shall meet."""

    replicas: int = 1
    gpus: int = 1
    """GPUs of one replica: tensor parallelism."""
    context_tokens: int = 8192
    prompt_tokens: int = 1024
    output_tokens: int = 256
    max_num_seqs: int = 256
    batched_tokens: int = 8192
    memory_ratio: float = 0.9
    """Share of the GPU's memory that the engine may take (`gpu_memory_utilization`)."""
    weights: WeightType = "bf16"
    kv: KvType = "auto"
    kv_cache_bytes: int | None = None
    """KV cache of one GPU, where it is set; else what is left."""
    ttft_target_ms: float = 50.0
    tpot_target_ms: float = 10.0


@dataclass(frozen=True, slots=True)
class KvCache:
    """The paged cache of one replica."""

    blocks: int
    block_tokens: int
    tokens: int
    """As vLLM reports it at start: blocks over the blocks of one full context, times that context."""
    full_sequences: int
    """Sequences that fit at once when each uses the whole context."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One model on one kind of GPU. Times are ceilings: a run is slower, never faster."""

    weight_bytes: int
    """Of one GPU."""
    activation_bytes: int
    """Of one GPU; an estimate."""
    kv_cache_bytes: int
    """Of one GPU."""
    kv: KvCache
    sequences: int
    """Sequences of the wished lengths that one replica decodes at once."""
    ttft_ms: float
    tpot_ms: float
    """At `sequences` side by side."""
    tpot_alone_ms: float
    sequences_within_target: int
    """Most sequences with which a step still meets the target; 0 when even one misses it."""
    prefill_tokens_per_s: float
    """Of one replica."""
    decode_tokens_per_s: float
    """Of one replica, at `sequences`."""
    requests_per_s: float
    """Of all replicas: each request pays its prefill and its share of every step."""
    meets_ttft: bool
    meets_tpot: bool


@dataclass(frozen=True, slots=True)
class KvLayout:
    """How keys and values are laid out."""

    block_tokens: int = BLOCK_TOKENS
    element_bytes: int = 2
    gpus: int = 1


def kv_cache(geometry: Geometry, available_bytes: int, *, context_tokens: int, layout: KvLayout) -> KvCache:
    """The cache that `available_bytes` of one GPU give, counted as vLLM counts it.

    Raises:
        InsufficientMemory: not even one full context fits.
    """
    elements = 2 * geometry.layers * kv_heads_of_one(geometry, layout.gpus) * geometry.head_length
    block_bytes = layout.block_tokens * elements * layout.element_bytes
    blocks = available_bytes // block_bytes
    needed = math.ceil(context_tokens / layout.block_tokens)
    if blocks < needed:
        raise InsufficientMemory(
            f"The KV cache would hold {max(0, blocks)} blocks, and one context of {context_tokens} tokens takes "
            f"{needed}: a smaller context, more GPUs or smaller weights would fit.",
            needed_bytes=needed * block_bytes,
            free_bytes=max(0, available_bytes),
        )
    return KvCache(blocks, layout.block_tokens, int(blocks / needed * context_tokens), blocks // needed)


def plan(geometry: Geometry, gpu: Gpu, wish: Wish) -> Plan:
    """What `wish` gets.

    Raises:
        InvalidRequest: the model cannot be split so.
        ContextLengthExceeded: the wished lengths do not fit the context, or the context the model.
        InsufficientMemory: weights and one context do not fit the GPU.
    """
    _check(geometry, wish)
    weights = weight_bytes(geometry, wish)
    activations = activation_bytes(geometry, wish)
    free = int(gpu.memory_bytes * wish.memory_ratio) - weights - activations - RUNTIME_BYTES
    available = wish.kv_cache_bytes if wish.kv_cache_bytes is not None else free
    if free <= 0 or available > free:
        raise InsufficientMemory(
            f"One {gpu.name} has {_gib(gpu.memory_bytes * wish.memory_ratio)} GiB for the engine; weights take "
            f"{_gib(weights)} and activations and runtime {_gib(activations + RUNTIME_BYTES)}, "
            f"which leaves {_gib(max(0, free))} for the KV cache.",
            needed_bytes=weights + activations + RUNTIME_BYTES + max(1, wish.kv_cache_bytes or 0),
            free_bytes=int(gpu.memory_bytes * wish.memory_ratio),
        )
    layout = KvLayout(element_bytes=_KV_BYTES[wish.kv], gpus=wish.gpus)
    cache = kv_cache(geometry, available, context_tokens=wish.context_tokens, layout=layout)
    return _timed(geometry, gpu, wish, (weights, activations, available), cache)


def weight_bytes(geometry: Geometry, wish: Wish) -> int:
    """Bytes of weights on one GPU; KV projections that are repeated over GPUs count each time."""
    tables = geometry.vocabulary * geometry.hidden * (2 if geometry.lookup_parameters else 1)
    repeated = kv_heads_of_one(geometry, wish.gpus) * wish.gpus - geometry.kv_heads
    matrices = geometry.parameters - tables + 2 * geometry.layers * geometry.hidden * repeated * geometry.head_length
    return math.ceil((matrices * _MATRIX_BYTES[wish.weights] + tables * _PLAIN_BYTES) / wish.gpus)


def activation_bytes(geometry: Geometry, wish: Wish) -> int:
    """Peak of what a step keeps beside weights and cache, on one GPU: an estimate of vLLM's own profiling run."""
    wide = 4 * geometry.hidden + 3 * geometry.feed_forward // wish.gpus
    logits = wish.max_num_seqs * geometry.vocabulary * (_PLAIN_BYTES + 2 * 4)  # the logits, and twice as float32
    return wish.batched_tokens * wide * _PLAIN_BYTES + logits


def _timed(geometry: Geometry, gpu: Gpu, wish: Wish, sizes: tuple[int, int, int], cache: KvCache) -> Plan:
    weights, activations, available = sizes
    eight_bits = gpu.flops_8_bit if wish.weights == "fp8" else None
    elements = 2 * geometry.layers * kv_heads_of_one(geometry, wish.gpus) * geometry.head_length
    load = Load(
        geometry=geometry,
        gpu=gpu,
        gpus=wish.gpus,
        weight_bytes=weights - geometry.lookup_parameters * _PLAIN_BYTES / wish.gpus,
        kv_bytes_per_token=elements * _KV_BYTES[wish.kv],
        flops_per_s=eight_bits or gpu.flops_16_bit,
    )
    blocks_each = math.ceil((wish.prompt_tokens + wish.output_tokens) / cache.block_tokens)
    sequences = max(1, min(wish.max_num_seqs, cache.blocks // blocks_each))
    ttft = float(prefill_ms(load, np.array([wish.prompt_tokens], dtype=np.float64))[0])
    steps = decode_ms(load, np.arange(1, sequences + 1, dtype=np.float64), wish.prompt_tokens + wish.output_tokens / 2)
    tpot = float(steps[-1])
    return Plan(
        weight_bytes=weights,
        activation_bytes=activations,
        kv_cache_bytes=available,
        kv=cache,
        sequences=sequences,
        ttft_ms=ttft,
        tpot_ms=tpot,
        tpot_alone_ms=float(steps[0]),
        sequences_within_target=int(np.searchsorted(steps, wish.tpot_target_ms)),
        prefill_tokens_per_s=wish.prompt_tokens / ttft * 1000,
        decode_tokens_per_s=sequences / tpot * 1000,
        requests_per_s=wish.replicas * 1000 / (ttft + wish.output_tokens * tpot / sequences),
        meets_ttft=ttft < wish.ttft_target_ms,
        meets_tpot=tpot < wish.tpot_target_ms,
    )


def weights_named(name: str) -> WeightType:
    """The type of weights called `name`.

    Raises:
        InvalidRequest: there is none.
    """
    for known in _MATRIX_BYTES:
        if name == known:
            return known
    raise InvalidRequest(f"Weights are {', '.join(_MATRIX_BYTES)}.", param="weights")


def kv_type_named(name: str) -> KvType:
    """The type of the KV cache called `name`.

    Raises:
        InvalidRequest: there is none.
    """
    for known in _KV_BYTES:
        if name == known:
            return known
    raise InvalidRequest(f"KV caches are {', '.join(_KV_BYTES)}.", param="kv_type")


def _check(geometry: Geometry, wish: Wish) -> None:
    if not can_split(geometry, wish.gpus):
        raise InvalidRequest(
            f"This model has {geometry.heads} heads and {geometry.kv_heads} KV heads; they cannot be split over "
            f"{wish.gpus} GPUs.",
            param="tensor_parallel",
        )
    if wish.context_tokens > geometry.trained_context_tokens:
        raise ContextLengthExceeded.of(
            needed_tokens=wish.context_tokens, limit_tokens=geometry.trained_context_tokens, param="context"
        )
    needed = wish.prompt_tokens + wish.output_tokens
    if needed > wish.context_tokens:
        raise ContextLengthExceeded.of(needed_tokens=needed, limit_tokens=wish.context_tokens, param="prompt")


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / 2**30:.2f}"
