"""Reads temperatures and power from sysfs-shaped trees; every fault of a file is a value, not an exception.

    {root}/class/thermal/thermal_zone*/{type,temp}      millidegrees (Documentation/ABI/testing/sysfs-class-thermal)
    {root}/class/hwmon/hwmon*/{name,temp*_input}        millidegrees (Documentation/hwmon/sysfs-interface.rst)
    {root}/class/power_supply/*                         see `edge.devices.power`

All of it blocks, some drivers for tens of milliseconds: call it in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import Path

from edge.devices.power import Power, read_power
from edge.service.thermal.power import first_battery
from edge.service.thermal.readings import plausible_c

_READ_BYTES = 256


class SensorFault(StrEnum):
    """Why a sensor gives no value."""

    UNREADABLE = "unreadable"
    NOT_A_NUMBER = "not_a_number"
    IMPLAUSIBLE = "implausible"


@dataclass(frozen=True, slots=True)
class Sensor:
    """One sensor at one instant: either `celsius` or `fault` is set."""

    kind: str
    celsius: float | None
    fault: SensorFault | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """Everything the trees said at one instant."""

    sensors: tuple[Sensor, ...]
    power: Power


def read(roots: Sequence[Path], ignore: Sequence[str]) -> Sample:
    """Read all trees; roots, files and values that do not exist are simply not there."""
    sensors = [sensor for root in roots for sensor in _temperatures(root, ignore)]
    return Sample(tuple(sensors), first_battery([read_power(root) for root in roots]))


def _temperatures(root: Path, ignore: Sequence[str]) -> Iterator[Sensor]:
    for zone in _folders(root / "class/thermal", "thermal_zone*"):
        kind = _text(zone / "type") or zone.name
        if not any(fnmatch(kind, pattern) for pattern in ignore):
            yield _sensor(kind, zone / "temp")
    for chip in _folders(root / "class/hwmon", "hwmon*"):
        kind = _text(chip / "name") or chip.name
        if not any(fnmatch(kind, pattern) for pattern in ignore):
            for source in _folders(chip, "temp*_input"):
                yield _sensor(kind, source)


def _sensor(kind: str, source: Path) -> Sensor:
    text = _text(source)
    if text is None:
        return Sensor(kind, None, SensorFault.UNREADABLE)
    try:
        # Some drivers write fractions; anything beyond a float is no temperature either.
        millidegrees = int(float(text))
    except (ValueError, OverflowError):
        return Sensor(kind, None, SensorFault.NOT_A_NUMBER)
    celsius = plausible_c(millidegrees)
    return Sensor(kind, celsius, None if celsius is not None else SensorFault.IMPLAUSIBLE)


def _folders(parent: Path, pattern: str) -> list[Path]:
    try:
        return sorted(parent.glob(pattern))
    except OSError:
        return []


def _text(path: Path) -> str | None:
    """The file's stripped text; None when it cannot be read (EINVAL, ENODEV, gone) or is empty."""
    try:
        with path.open("rb") as file:
            raw = file.read(_READ_BYTES)
    except OSError:
        return None
    return raw.decode("ascii", "replace").strip() or None
