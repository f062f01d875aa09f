"""Decides, before any process is started, with which options a package runs on this device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from edge.devices.probe import DeviceFacts
from edge.memory.capacity import MIB, Budget, CapacityPlan, Demand, plan_capacity, plan_of
from edge.memory.geometry import ModelGeometry
from edge.memory.kv import KvType, row_fits
from edge.memory.pressure import Step, shapes
from edge.packages.adapters.adapter import Adapter
from edge.packages.manifest import Pooling
from edge.packages.package import Package
from edge.runtime.drafting import Drafting
from edge.runtime.options import (
    DRAFT_TOKENS,
    LEAST_BATCH_TOKENS,
    NGRAM_TOKENS,
    WHOLE_INPUT,
    EngineOptions,
    ProcessOptions,
    check_range,
)
from edge.scheduling.speculation import SpeculationMode
from edge.scheduling.tuning import MOST_THREADS, Spin, Tuning
from shared.errors import SettingsError

DETERMINISTIC_UBATCH_TOKENS = 63
FAST_UBATCH_TOKENS = 128
MINIMUM_CONTEXT_TOKENS = 2048
POOLED_INPUT_TOKENS = 512
"""Unless a batch is chosen: a text whose vector is made of all its tokens at once is read in one micro-batch."""
LORA = "lora"
"""Feature of a model whose engine loads adapters."""
DETERMINISTIC = "deterministic"
EMBEDDINGS = "embeddings"
"""Feature of a model that makes vectors of texts."""
_FEATURES = frozenset({"tools", "structured_output", "logprobs", "continuation", LORA})


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What the operator may choose; None leaves the choice to the plan. Contexts are per slot."""

    slots: int = 1
    context_tokens: int | None = None
    minimum_context_tokens: int = MINIMUM_CONTEXT_TOKENS
    maximum_context_tokens: int | None = None
    kv_type: KvType = KvType.F16
    threads: int | None = None
    threads_batch: int | None = None
    deterministic: bool = True
    batch_tokens: int | None = None
    spin: Spin = Spin.LONG
    gpu_layers: int | None = None
    tensor_overrides: tuple[tuple[str, str], ...] = ()
    draft_device: str | None = None
    drafting: Drafting | None = None
    draft_tokens: int = DRAFT_TOKENS
    ngram_tokens: int = NGRAM_TOKENS
    pooling: Pooling | None = None
    """How the model makes embeddings, where it does; `plan_engine` reads it from the package."""
    prompt_cache_mib: int = 0
    reserve_bytes: int = 256 * MIB
    lock_weights: bool = False
    sleep_after_s: int = 0
    adapters_bytes: int = 0
    """Kept free for adapters that are loaded later."""

    def __post_init__(self) -> None:
        for name in ("slots", "prompt_cache_mib", "sleep_after_s", "draft_tokens", "ngram_tokens"):
            check_range(name, getattr(self, name))
        if self.batch_tokens is not None:
            check_range("batch_tokens", self.batch_tokens)
        for limit in (self.context_tokens, self.minimum_context_tokens, self.maximum_context_tokens):
            if limit is not None:
                check_range("context_tokens", limit)

    @property
    def read_tokens(self) -> int:
        """Prompt tokens that are read at once, at most."""
        if self.batch_tokens is not None:
            return self.batch_tokens
        if self.pooling in WHOLE_INPUT:
            return POOLED_INPUT_TOKENS
        # Streams beside a prompt wait for a batch of it. Unmeasured nobody knows how long that takes, so it is the
        # least that costs no speed: one micro-batch.
        return DETERMINISTIC_UBATCH_TOKENS if self.deterministic else FAST_UBATCH_TOKENS


@dataclass(frozen=True, slots=True)
class StaticPlan:
    """A package, how it will be run, and what memory that takes. Holds until the next swap."""

    package: Package
    geometry: ModelGeometry
    options: ProcessOptions
    capacity: CapacityPlan
    shape: Callable[[int, int], StaticPlan] = field(repr=False, compare=False)
    """The same package and choices with other slots and another context per slot, whatever memory there is."""
    features: frozenset[str] = _FEATURES
    speculation: SpeculationMode = SpeculationMode.OFF
    speculating: Callable[[SpeculationMode], StaticPlan] | None = field(default=None, repr=False, compare=False)
    """The same with another way of speculating; None where the engine knows none, or has no room for it in a batch."""
    adapters: tuple[Adapter, ...] = ()
    """Loaded beside the weights, in the order of the engine's own numbers for them."""
    drafting: Drafting | None = None
    tuning: Callable[[Tuning], StaticPlan] | None = field(default=None, repr=False, compare=False)
    """The same with threads, spinning and batch as they were measured to be best; None where nothing is measured."""

    def tuned(self, tuning: Tuning) -> StaticPlan:
        """See `tuning`."""
        return self if self.tuning is None else self.tuning(tuning).with_adapters(self.adapters)

    def in_mode(self, mode: SpeculationMode) -> StaticPlan:
        """The same, speculating in this way; where the engine knows none, as it is."""
        return self if self.speculating is None else self.speculating(mode).with_adapters(self.adapters)

    def with_adapters(self, adapters: tuple[Adapter, ...]) -> StaticPlan:
        """The same with other adapters; their memory was set aside when it was planned."""
        return replace(self, adapters=adapters)

    def on_threads_of(self, full: StaticPlan, ratio: float) -> StaticPlan:
        """The same on this share of the threads of `full`, at least one in each pool; itself if that is no change."""
        counts = tuple(max(1, int(count * ratio)) for count in full.options.thread_counts)
        if counts == self.options.thread_counts:
            return self
        return replace(self, options=self.options.with_thread_counts(counts))

    @property
    def model_path(self) -> Path:
        """The model file of the package."""
        return self.package.model_path


def check_cache(geometry: ModelGeometry, kv_type: KvType) -> None:
    """Raise SettingsError unless the model's heads divide into blocks of `kv_type`."""
    if not row_fits(geometry, kv_type):
        raise SettingsError(
            f"KV type {kv_type} needs head sizes in multiples of 32; this model has "
            f"{geometry.key_length} and {geometry.value_length}.",
            param="kv_type",
        )


def _check_lock(package: Package, device: DeviceFacts, request: PlanRequest) -> None:
    """The engine only warns when it may not lock its weights; whoever asked for it is told before."""
    needed_bytes, limit_bytes = package.manifest.size_bytes, device.lockable_bytes
    if request.lock_weights and limit_bytes is not None and limit_bytes < needed_bytes:
        raise SettingsError(
            f"Locking the weights takes {needed_bytes} bytes; this process may lock {limit_bytes} (ulimit -l).",
            param="memory.lock",
        )


def ubatch_tokens(request: PlanRequest) -> int:
    """Tokens that the engine computes together while it reads a prompt."""
    if request.pooling in WHOLE_INPUT:
        return request.read_tokens
    return min(DETERMINISTIC_UBATCH_TOKENS if request.deterministic else FAST_UBATCH_TOKENS, request.read_tokens)


def batch_tokens(request: PlanRequest) -> int:
    """Prompt tokens that the engine reads at once: at most the batch that was asked for, in whole micro-batches, as a
    rest of a few tokens would cost as much time as a token of output."""
    ubatch = ubatch_tokens(request)
    return max(LEAST_BATCH_TOKENS, request.read_tokens // ubatch * ubatch)


@dataclass(frozen=True, slots=True)
class _Ground:
    """What stays the same in every shape of a plan."""

    package: Package
    budget: Budget
    drafting: Drafting | None

    def plan(self, basis: EngineOptions, slots: int, context_tokens: int) -> StaticPlan:
        geometry = self.package.manifest.geometry
        options = replace(basis, slots=slots, context_tokens=context_tokens)
        if not options.draft_room_tokens:
            options = replace(options, speculation=SpeculationMode.OFF)
        demand = Demand(
            slots=slots,
            kv_type=options.kv_type,
            ubatch_tokens=options.ubatch_tokens,
            minimum_context_tokens=context_tokens,
            draft=self.drafting.memory if self.drafting is not None else None,
        )
        return StaticPlan(
            package=self.package,
            geometry=geometry,
            options=options,
            capacity=plan_of(geometry, self.budget, demand, context_tokens),
            shape=partial(self.plan, basis),
            features=_features(options),
            speculation=options.speculation,
            speculating=partial(self._speculating, options) if options.draft_room_tokens else None,
            drafting=self.drafting,
            tuning=partial(self._tuned, options),
        )

    def _speculating(self, basis: EngineOptions, mode: SpeculationMode) -> StaticPlan:
        return self.plan(replace(basis, speculation=mode), basis.slots, basis.context_tokens)

    def _tuned(self, basis: EngineOptions, tuning: Tuning) -> StaticPlan:
        options = replace(
            basis,
            threads=tuning.threads,
            threads_batch=tuning.threads_batch,
            spin=tuning.spin,
            batch_tokens=tuning.batch_tokens,
            ubatch_tokens=min(basis.ubatch_tokens, tuning.batch_tokens),
        )
        return self.plan(options, basis.slots, basis.context_tokens)


def _features(options: EngineOptions) -> frozenset[str]:
    """With `deterministic` where greedy decoding depends on the text alone: not with large micro-batches, whose sums
    come in another order, and not while tokens are guessed ahead."""
    is_steady = options.ubatch_tokens <= DETERMINISTIC_UBATCH_TOKENS and options.speculation is SpeculationMode.OFF
    found = _FEATURES if options.pooling is None else _FEATURES | {EMBEDDINGS}
    return found | {DETERMINISTIC} if is_steady else found


def steps_of(plan: StaticPlan, minimum_context_tokens: int) -> tuple[Step, ...]:
    """The ladder down from `plan`; its last step runs the smallest engine and admits nothing."""
    served = [
        Step(slots, context_tokens, _private_bytes(plan.shape(slots, context_tokens)))
        for slots, context_tokens in shapes(plan.options.slots, plan.options.context_tokens, minimum_context_tokens)
    ]
    return (*served, replace(served[-1], admits=False))


def _private_bytes(plan: StaticPlan) -> int:
    """What an engine adds where the weights are mapped already; locked or not, the pages are one and the same."""
    return plan.capacity.engine_bytes - plan.capacity.weights_bytes


def _budget(package: Package, device: DeviceFacts, request: PlanRequest) -> Budget:
    return Budget(
        available_bytes=device.memory_available_bytes,
        weights_bytes=package.manifest.model_file.size_bytes,
        reserve_bytes=request.reserve_bytes,
        prompt_cache_bytes=request.prompt_cache_mib * MIB,
        adapters_bytes=request.adapters_bytes,
    )


def plan_engine(package: Package, device: DeviceFacts, request: PlanRequest) -> StaticPlan:
    """Threads, batches, context and KV type for `package` on `device`.

    Unmeasured, one core is left to the rest of the machine while decoding, and prefill takes all of them.

    Raises:
        InsufficientMemory: not even the minimum context fits; names needed and free bytes.
        SettingsError: an option is out of range or does not suit the model.
    """
    geometry = package.manifest.geometry
    request = replace(request, pooling=package.manifest.model.pooling)
    check_cache(geometry, request.kv_type)
    _check_lock(package, device, request)
    budget = _budget(package, device, request)
    capacity = plan_capacity(
        geometry,
        budget,
        Demand(
            slots=request.slots,
            kv_type=request.kv_type,
            ubatch_tokens=ubatch_tokens(request),
            minimum_context_tokens=request.minimum_context_tokens,
            context_tokens=request.context_tokens,
            maximum_context_tokens=request.maximum_context_tokens,
            draft=request.drafting.memory if request.drafting is not None else None,
        ),
    )
    options = EngineOptions(
        model_alias=package.name,
        context_tokens=capacity.context_tokens,
        slots=request.slots,
        threads=request.threads or min(max(1, device.cores_usable - 1), MOST_THREADS),
        threads_batch=request.threads_batch or min(max(1, device.cores_usable), MOST_THREADS),
        kv_type=request.kv_type,
        batch_tokens=batch_tokens(request),
        ubatch_tokens=ubatch_tokens(request),
        prompt_cache_mib=request.prompt_cache_mib,
        lock_weights=request.lock_weights,
        sleep_after_s=request.sleep_after_s,
        spin=request.spin,
        draft_tokens=request.draft_tokens,
        ngram_tokens=request.ngram_tokens,
        gpu_layers=request.gpu_layers,
        tensor_overrides=request.tensor_overrides,
        draft_device=request.draft_device,
        pooling=request.pooling,
    )
    return _Ground(package, budget, request.drafting).plan(options, options.slots, options.context_tokens)
