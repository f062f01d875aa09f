"""What `isthmus edge devices` prints."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.table import Table

from edge.console import MIB, print_facts, print_json, text_console
from edge.devices import benchmark
from edge.devices.benchmark import Benchmark
from edge.devices.probe import DeviceFacts, probe
from edge.devices.profile import DeviceProfile, find_profile, shipped_profiles
from edge.devices.runtimes import RuntimeReport, RuntimeState, ask_runtimes
from edge.runtime.forecast import measurements_dir
from shared.errors import SettingsError


def show(*, bench: bool, profiles: bool, profile: str | None, as_json: bool) -> None:
    """This device, another from a profile, or the list of shipped profiles.

    Raises:
        SettingsError: options exclude each other, the profile does not hold, or the benchmark cannot run.
    """
    if profiles:
        _show_profiles(as_json=as_json)
    elif profile is not None:
        if bench:
            raise SettingsError("--bench measures this device; a profile describes another.", param="bench")
        _show_profile(find_profile(profile), as_json=as_json)
    else:
        device = probe()
        measured = measured_now(device) if bench else benchmark.kept(measurements_dir(), device)
        _show_device(device, measured, ask_runtimes(), as_json=as_json)


def measured_now(device: DeviceFacts) -> Benchmark:
    """Measure and keep; where it cannot be kept, it was measured all the same."""
    measured = benchmark.measure(device)
    try:
        benchmark.keep(measurements_dir(), measured)
    except OSError as error:
        raise SettingsError(
            f"The measurement cannot be kept in {measurements_dir()}: {error.strerror}.", param="bench"
        ) from None
    return measured


def _show_device(
    device: DeviceFacts, measured: Benchmark | None, runtimes: tuple[RuntimeReport, ...], *, as_json: bool
) -> None:
    if as_json:
        print_json(
            {
                "machine": device.machine,
                "cpu": {
                    "model": device.cpu_model,
                    "features": sorted(device.cpu_features),
                    "cores_total": device.cores_total,
                    "cores_usable": device.cores_usable,
                    "caches": [dataclasses.asdict(cache) for cache in device.caches],
                },
                "memory": {
                    "total_bytes": device.memory_total_bytes,
                    "available_bytes": device.memory_available_bytes,
                },
                "power": dataclasses.asdict(device.power),
                "missing_libraries": list(device.missing_libraries),
                "identity": benchmark.machine_identity(device),
                "benchmark": _benchmark(measured),
                "runtimes": [dataclasses.asdict(report) for report in runtimes],
            }
        )
        return
    caches = ", ".join(f"L{cache.level} {_size(cache.size_bytes)}" for cache in device.caches)
    charge = device.power.battery_percent
    print_facts(
        {
            "processor": f"{device.cpu_model} ({device.machine})",
            "cores": f"{device.cores_usable} of {device.cores_total} usable",
            "features": " ".join(sorted(device.cpu_features)) or "none known",
            "caches": caches or None,
            "memory": f"{_size(device.memory_available_bytes)} of {_size(device.memory_total_bytes)} available",
            "power": device.power.source.value + ("" if charge is None else f", battery {charge:.0f} %"),
            "missing": ", ".join(device.missing_libraries) or None,
        }
    )
    console = text_console()
    console.print()
    console.print(_runtimes(runtimes))
    console.print()
    if measured is None:
        console.print("Peaks are not measured yet: isthmus edge devices --bench")
    else:
        console.print(_peaks(measured))


def _runtimes(runtimes: tuple[RuntimeReport, ...]) -> Table:
    table = Table("runtime", "unit", "kind", "takes", "memory", "description", box=None)
    for report in runtimes:
        name = f"{report.name} {report.version or ''}".strip()
        if report.state is not RuntimeState.PRESENT:
            table.add_row(name, "-", "-", "-", "-", report.state.value.replace("_", " "))
        for unit in report.units:
            memory = "-" if unit.memory_bytes is None else _size(unit.memory_bytes)
            takes = unit.delegation.value.replace("_", " ")
            table.add_row(name, unit.name, unit.kind.value, takes, memory, unit.description)
    return table


def _peaks(measured: Benchmark) -> Table:
    table = _table("measured", "threads", "size", "median")
    for threads, rates in measured.by_threads.items():
        for name, values, scale, unit, size in (
            ("matrix product", rates.matmul, 1e9, "GFLOP/s", lambda n: f"{n} x {n}"),
            ("copy", rates.copy_, 1e9, "GB/s", _size),
            ("triad", rates.triad, 1e9, "GB/s", _size),
        ):
            for key, value in values.items():
                table.add_row(name, str(threads), size(key), f"{value / scale:.1f} {unit}")
    return table


def _benchmark(measured: Benchmark | None) -> dict[str, Any] | None:
    if measured is None:
        return None
    return {
        str(threads): rates.model_dump(mode="json", by_alias=True)
        | {"flops_per_s": rates.flops_per_s, "bytes_per_s": rates.bytes_per_s}
        for threads, rates in measured.by_threads.items()
    }


def _show_profiles(*, as_json: bool) -> None:
    found = {name: find_profile(name) for name in shipped_profiles()}
    if as_json:
        print_json({name: profile.model_dump(mode="json") for name, profile in found.items()})
        return
    table = Table("profile", "device", "units", box=None)
    for name, profile in found.items():
        table.add_row(name, profile.name, ", ".join(unit.name for unit in profile.units))
    text_console().print(table)


def _show_profile(profile: DeviceProfile, *, as_json: bool) -> None:
    if as_json:
        print_json(profile.model_dump(mode="json"))
        return
    console, table = text_console(), _table("unit", "kind", "takes", "GFLOP/s", "GB/s", "description")
    console.print(f"{profile.name}, {_size(profile.memory.available)} for models, {profile.memory.page} bytes a page")
    for unit in profile.units:
        table.add_row(
            unit.name,
            unit.kind.value,
            unit.delegation.kind.value.replace("_", " "),
            f"{unit.flops_per_s / 1e9:.1f}",
            f"{unit.bytes_per_s / 1e9:.1f}",
            unit.description,
        )
    console.print(table)
    sources = Table("figure", "source", box=None)
    for figure, source in profile.sources.items():
        sources.add_row(figure, source)
    if profile.sources:
        console.print()
        console.print(sources)


def _size(size_bytes: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", MIB), ("KiB", 1 << 10)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.0f} {unit}"
    return f"{size_bytes} B"


def _table(*columns: str) -> Table:
    table = Table(*columns, box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    return table
