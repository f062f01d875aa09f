"""Turns the plan of operators for a described device into what the engine is told to offload, and to where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edge.devices.delegation import DelegationKind
from edge.devices.unit import UnitKind, UnitProfile
from edge.packages.package import Package
from edge.runtime.forecast import model_of, other_device
from edge.runtime.plan import PlanRequest
from edge.scheduling.engine_settings import engine_settings
from edge.scheduling.schedule import Demand, schedule


def offloaded(request: PlanRequest, package: Package, profile: str, devices: Sequence[str]) -> PlanRequest:
    """`request` with the layers, exceptions and draft device that the plan on `profile` asks for.

    `devices` are the GPUs that the engine itself sees, by its names; the described ones stand for them in this order.
    Units that the engine does not see, or cannot drive, are no part of the plan. Threads are not taken from a
    description: they follow from this very machine.

    Raises:
        SettingsError: the profile cannot be read, does not hold, or describes no units.
    """
    host, *others = other_device(profile).units
    found = dict(zip((unit.name for unit in others if _drivable(unit)), devices, strict=False))
    units = (host, *(unit for unit in others if unit.name in found))
    model = replace(model_of(package), kv_type=request.kv_type)
    context = request.context_tokens or min(Demand().context_tokens, model.geometry.trained_context_tokens)
    plan = schedule(model, units, Demand(context_tokens=context))
    chosen = engine_settings(plan, units, model.geometry.layers)
    return replace(
        request,
        gpu_layers=chosen.n_gpu_layers,
        tensor_overrides=chosen.tensor_overrides,
        draft_device=None if chosen.draft_device is None else found[chosen.draft_device],
    )


def _drivable(unit: UnitProfile) -> bool:
    return unit.kind is UnitKind.GPU and unit.delegation.kind is DelegationKind.PER_OPERATOR
