"""`isthmus edge plan` for a package that fixes its cache and its loading: only slots and context are left to choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from edge.console import library, print_json, text_console
from edge.devices.probe import probe
from edge.devices.profile import size_in_bytes
from edge.memory.capacity import MIB
from edge.packages.manifest import WHOLE_FOLDER
from edge.packages.package import Package
from edge.planning import plan_request
from edge.runtime.kinds import plan_package
from edge.settings import EdgeSettings
from shared.errors import SettingsError


def fixed_package(settings: EdgeSettings, model: str) -> Package | None:
    """The installed package `model`, if it is one of this kind.

    Raises:
        NotFound: it is not installed.
    """
    if "/" in model or Path(model).suffix == ".gguf":
        return None
    package = library(settings).show(model)
    return package if package.manifest.entry == WHOLE_FOLDER else None


def show(
    settings: EdgeSettings, package: Package, memory: str | None, unusable: Mapping[str, object], *, as_json: bool
) -> None:
    """The plan that `serve` would follow. `unusable` are options that mean nothing here: any that is set is refused.

    Raises:
        InsufficientMemory: not even the minimum context fits.
        SettingsError: an option does not suit the package.
    """
    for name, value in unusable.items():
        if value:
            raise SettingsError(f"--{name} does not apply to an ONNX package.", param=name)
    device = probe()
    if memory is not None:
        device = replace(device, memory_available_bytes=size_in_bytes(memory, param="memory"))
    plan = plan_package(package, device, plan_request(settings)).capacity
    lines = {name: size_bytes for name, size_bytes in plan.lines if size_bytes}
    if as_json:
        print_json(
            {
                "model": package.name,
                "format": package.manifest.model.format,
                "context_tokens": plan.context_tokens,
                "slots": plan.slots,
                "kv_type": plan.kv_type.value,
                "device": {"memory_bytes": device.memory_available_bytes},
                "lines": {f"{name}_bytes": size_bytes for name, size_bytes in lines.items()},
                "total_bytes": plan.total_bytes,
            }
        )
        return
    console = text_console()
    console.print(
        f"{package.name}: {plan.slots} slot(s) of {plan.context_tokens} tokens, KV {plan.kv_type.value} (fixed by the "
        f"package), with {device.memory_available_bytes / MIB:.0f} MiB"
    )
    table = Table("memory", "MiB", "bytes", box=None)
    for name, size_bytes in (*lines.items(), ("total", plan.total_bytes)):
        table.add_row(name.replace("_", " "), f"{size_bytes / MIB:.1f}", str(size_bytes))
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(table)
