"""Decides, before any process is started, with which options a package runs on this device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge.devices.probe import DeviceFacts
from edge.memory.capacity import MIB, Budget, CapacityPlan, Demand, plan_capacity
from edge.memory.geometry import ModelGeometry
from edge.memory.kv import KvType, row_fits
from edge.packages.package import Package
from edge.runtime.options import EngineOptions, check_range
from shared.errors import SettingsError

DETERMINISTIC_UBATCH_TOKENS = 63
FAST_UBATCH_TOKENS = 128
_FEATURES = frozenset({"tools", "structured_output", "logprobs"})


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What the operator may choose; None leaves the choice to the plan. Contexts are per slot."""

    slots: int = 1
    context_tokens: int | None = None
    minimum_context_tokens: int = 2048
    maximum_context_tokens: int | None = None
    kv_type: KvType = KvType.F16
    threads: int | None = None
    threads_batch: int | None = None
    deterministic: bool = True
    batch_tokens: int = 128
    prompt_cache_mib: int = 0
    reserve_bytes: int = 256 * MIB

    def __post_init__(self) -> None:
        for name in ("slots", "batch_tokens", "prompt_cache_mib"):
            check_range(name, getattr(self, name))
        for limit in (self.context_tokens, self.minimum_context_tokens, self.maximum_context_tokens):
            if limit is not None:
                check_range("context_tokens", limit)


@dataclass(frozen=True, slots=True)
class StaticPlan:
    """A package, how it will be run, and what memory that takes. Holds until the next swap."""

    package: Package
    geometry: ModelGeometry
    options: EngineOptions
    capacity: CapacityPlan
    features: frozenset[str] = _FEATURES

    @property
    def model_path(self) -> Path:
        """The model file of the package."""
        return self.package.model_path


def plan_engine(package: Package, device: DeviceFacts, request: PlanRequest) -> StaticPlan:
    """Threads, batches, context and KV type for `package` on `device`.

    One core is left to the rest of the machine while decoding: with a foreign busy process, decoding on every core
    was measured 70 times slower than on one less. Prefill takes all of them.

    Raises:
        InsufficientMemory: not even the minimum context fits; names needed and free bytes.
        SettingsError: an option is out of range or does not suit the model.
    """
    geometry = package.manifest.geometry
    if not row_fits(geometry, request.kv_type):
        raise SettingsError(
            f"KV type {request.kv_type} needs head sizes in multiples of 32; this model has "
            f"{geometry.key_length} and {geometry.value_length}.",
            param="kv_type",
        )
    ubatch_tokens = min(
        DETERMINISTIC_UBATCH_TOKENS if request.deterministic else FAST_UBATCH_TOKENS, request.batch_tokens
    )
    capacity = plan_capacity(
        geometry,
        Budget(
            available_bytes=device.memory_available_bytes,
            weights_bytes=package.manifest.model_file.size_bytes,
            reserve_bytes=request.reserve_bytes,
            prompt_cache_bytes=request.prompt_cache_mib * MIB,
        ),
        Demand(
            slots=request.slots,
            kv_type=request.kv_type,
            ubatch_tokens=ubatch_tokens,
            minimum_context_tokens=request.minimum_context_tokens,
            context_tokens=request.context_tokens,
            maximum_context_tokens=request.maximum_context_tokens,
        ),
    )
    options = EngineOptions(
        model_alias=package.name,
        context_tokens=capacity.context_tokens,
        slots=request.slots,
        threads=request.threads or max(1, device.cores_usable - 1),
        threads_batch=request.threads_batch or max(1, device.cores_usable),
        kv_type=request.kv_type,
        batch_tokens=request.batch_tokens,
        ubatch_tokens=ubatch_tokens,
        prompt_cache_mib=request.prompt_cache_mib,
    )
    return StaticPlan(package=package, geometry=geometry, options=options, capacity=capacity)
