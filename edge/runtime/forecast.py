"""Gathers what a plan of operators needs of a device, and turns what was measured here into options of the engine."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from edge.devices import benchmark, calibrated
from edge.devices.benchmark import Benchmark, machine_identity
from edge.devices.probe import DeviceFacts
from edge.devices.profile import find_profile, measured
from edge.devices.unit import UnitProfile
from edge.packages.package import Package
from edge.runtime.plan import PlanRequest
from edge.scheduling.engine_settings import engine_settings
from edge.scheduling.graph import Model
from edge.scheduling.schedule import Demand, Schedule, schedule
from shared.errors import SettingsError
from shared.settings import home


@dataclass(frozen=True, slots=True)
class Ground:
    """What a plan stands on: units as they are in prefill and in decode, and forecasts by threads where measured.

    `described`: by a profile, not as it was found here.
    """

    name: str
    units: tuple[UnitProfile, ...]
    decode_units: tuple[UnitProfile, ...]
    by_threads: Mapping[int, Schedule] = field(default_factory=dict)
    described: bool = False

    @property
    def calibrated(self) -> bool:
        """Whether the engine was measured on all of it."""
        return all(unit.efficiency is not None for unit in (*self.units, *self.decode_units))

    @property
    def decode_by_threads(self) -> dict[int, float]:
        """Forecast decode tokens/s."""
        return {threads: plan.decode.tokens_per_s for threads, plan in self.by_threads.items()}

    @property
    def prefill_by_threads(self) -> dict[int, float]:
        """Forecast prefill tokens/s."""
        return {threads: plan.prefill.tokens_per_s for threads, plan in self.by_threads.items()}


def measurements_dir() -> Path:
    """Where what was measured on this device is kept."""
    return home() / "devices"


def engine_version() -> str:
    """The engine whose speed is measured."""
    try:
        return f"xllamacpp {importlib.metadata.version('xllamacpp')}"
    except importlib.metadata.PackageNotFoundError:
        return "none"


def model_of(package: Package) -> Model:
    """The package as the graph needs it. A manifest without types has one quantisation, which stands in for them."""
    facts = package.manifest.model
    by_type = {role: {facts.quantisation: size} for role, size in facts.weight_bytes.items()}
    return Model(facts.geometry, facts.tensor_bytes or by_type)


def other_device(profile: str) -> Ground:
    """The device that `profile` describes.

    Raises:
        SettingsError: it cannot be read, does not hold, or describes no units.
    """
    found = find_profile(profile)
    if not found.units:
        raise SettingsError("The profile describes no units to compute on.", param="units")
    return Ground(found.name, found.units, found.units, described=True)


def this_device(
    model: Model, demand: Demand, device: DeviceFacts, peaks: Benchmark, folder: Path, threads: int | None = None
) -> Ground:
    """This one by its `peaks` and what was calibrated before. `threads` for both phases; None: as engines start."""
    known = calibrated.kept(folder, machine_identity(device), engine_version(), model.types, model.kv_type.value)
    by_threads = dict(known.by_threads) if known is not None else {}

    def unit(count: int) -> UnitProfile:
        return by_threads.get(count) or measured(device, peaks, count).units[0]

    return Ground(
        name=device.cpu_model,
        units=(unit(threads or device.cores_usable),),
        decode_units=(unit(threads or max(1, device.cores_usable - 1)),),
        by_threads={count: schedule(model, (each,), demand) for count, each in by_threads.items()},
    )


def applied(request: PlanRequest, package: Package, device: DeviceFacts, folder: Path) -> PlanRequest:
    """`request` with the threads that were measured fastest on this device, where it leaves them open.

    Nothing is measured here: without a calibration for this machine, engine and model the request stays as it is.
    """
    peaks = benchmark.kept(folder, device)
    if package.manifest.model.format != "gguf" or peaks is None:
        return request
    model = replace(model_of(package), kv_type=request.kv_type)
    context = min(Demand().context_tokens, model.geometry.trained_context_tokens)
    ground = this_device(model, Demand(context_tokens=context), device, peaks, folder)
    if not ground.by_threads:
        return request
    plan = schedule(model, ground.units, Demand(context_tokens=context), decode_units=ground.decode_units)
    chosen = engine_settings(
        plan,
        ground.units,
        model.geometry.layers,
        decode_by_threads=ground.decode_by_threads,
        prefill_by_threads=ground.prefill_by_threads,
    )
    return replace(
        request,
        threads=request.threads or chosen.threads,
        threads_batch=request.threads_batch or chosen.threads_batch,
    )
