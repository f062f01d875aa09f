"""Chooses the planner by the format of a package: the table that joins the kinds of engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from edge.devices.probe import DeviceFacts
from edge.packages.package import Package
from edge.runtime.onnx.plan import plan_onnx
from edge.runtime.plan import PlanRequest, StaticPlan, plan_engine

PLANNERS: Mapping[str, Callable[[Package, DeviceFacts, PlanRequest], StaticPlan]] = {
    "gguf": plan_engine,
    "onnx": plan_onnx,
}


def plan_package(package: Package, device: DeviceFacts, request: PlanRequest) -> StaticPlan:
    """The plan for `package` on `device`.

    Raises:
        InsufficientMemory: not even the minimum context fits; names needed and free bytes.
        SettingsError: an option is out of range or does not suit the package.
    """
    return PLANNERS[package.manifest.model.format](package, device, request)
