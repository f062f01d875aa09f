"""Reads temperatures, energy and power from sysfs-shaped trees; every fault of a file is a value, not an exception.

    {root}/class/thermal/thermal_zone*/{type,temp}                  Documentation/ABI/testing/sysfs-class-thermal
    {root}/class/hwmon/hwmon*/{name,temp*_{input,label,fault}}      Documentation/hwmon/sysfs-interface.rst
    {root}/class/power_supply/*                                     see `edge.devices.power`
    {root}/class/powercap/*                                         see `edge.devices.powercap`

What this machine's libraries know beside its tree comes from `edge.devices.host_sensors`. All of it blocks, some
drivers for tens of milliseconds: call it in a thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from edge.devices.energy import EnergyCounter
from edge.devices.host_sensors import HostSensor
from edge.devices.kernel_files import text_of
from edge.devices.power import Power, read_power
from edge.devices.powercap import read_energy
from edge.service.thermal.power import first_battery
from edge.service.thermal.readings import ANY_SENSOR, SensorRule, plausible_c

_NAME_CHARS = 64


class SensorFault(StrEnum):
    """Why a sensor gives no value."""

    UNREADABLE = "unreadable"
    NOT_A_NUMBER = "not_a_number"
    IMPLAUSIBLE = "implausible"
    DECLARED = "declared"
    """The driver itself says that the sensor is faulty."""


@dataclass(frozen=True, slots=True)
class Sensor:
    """One sensor at one instant: either `celsius` or `fault` is set. Names are unique within a sample."""

    name: str
    celsius: float | None
    fault: SensorFault | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """Everything the trees said at one instant."""

    sensors: tuple[Sensor, ...]
    power: Power
    energy: tuple[EnergyCounter, ...] = ()


def read(
    roots: Sequence[Path],
    rules: Sequence[SensorRule] = (),
    host: Callable[[bool], Iterable[HostSensor]] = lambda _: (),
) -> Sample:
    """Read all trees; roots, files and values that do not exist are simply not there.

    The first of `rules` that fits decides how a sensor is read. `host` is asked for what libraries know, and told
    whether the trees had any sensor.
    """
    found = [sensor for root in roots for sensor in (*_zones(root, rules), *_chips(root, rules))]
    for each in host(bool(found)):
        rule = _rule(rules, each.kind, each.name)
        if rule.use:
            in_degrees = replace(rule, degrees_per_unit=rule.degrees_per_unit or 1.0)
            found.append(_judged(each.name, each.celsius, in_degrees))
    energy = tuple(counter for root in roots for counter in read_energy(root))
    return Sample(tuple(_numbered(found)), first_battery([read_power(root) for root in roots]), energy)


def _zones(root: Path, rules: Sequence[SensorRule]) -> Iterator[Sensor]:
    for zone in _entries(root / "class/thermal", "thermal_zone*"):
        kind = text_of(zone / "type") or zone.name
        rule = _rule(rules, kind, kind)
        if rule.use:
            yield _sensor(kind, zone / "temp", rule)


def _chips(root: Path, rules: Sequence[SensorRule]) -> Iterator[Sensor]:
    for chip in _entries(root / "class/hwmon", "hwmon*"):
        kind = text_of(chip / "name") or chip.name
        for source in _entries(chip, "temp*_input"):
            stem = source.name.removesuffix("_input")
            name = f"{kind}/{text_of(chip / f'{stem}_label') or stem}"
            rule = _rule(rules, kind, name)
            if not rule.use:
                continue
            declared = text_of(chip / f"{stem}_fault") == "1"
            yield Sensor(name, None, SensorFault.DECLARED) if declared else _sensor(name, source, rule)


def _rule(rules: Sequence[SensorRule], kind: str, name: str) -> SensorRule:
    return next((rule for rule in rules if rule.fits(kind, name)), ANY_SENSOR)


def _sensor(name: str, source: Path, rule: SensorRule) -> Sensor:
    text = text_of(source)
    if text is None:
        return Sensor(name, None, SensorFault.UNREADABLE)
    try:
        raw = float(text)
        int(raw)  # neither a NaN nor an infinity is a number here
    except (ValueError, OverflowError):
        return Sensor(name, None, SensorFault.NOT_A_NUMBER)
    return _judged(name, raw, rule)


def _judged(name: str, raw: float, rule: SensorRule) -> Sensor:
    celsius = plausible_c(raw, rule)
    return Sensor(name, celsius, None if celsius is not None else SensorFault.IMPLAUSIBLE)


def _numbered(sensors: Iterable[Sensor]) -> Iterator[Sensor]:
    """The same with each name once: a second chip of a kind is `kind#2`. Kernel numbers change with every reload."""
    seen: Counter[str] = Counter()
    for sensor in sensors:
        name = sensor.name[:_NAME_CHARS]
        seen[name] += 1
        yield replace(sensor, name=name if seen[name] == 1 else f"{name}#{seen[name]}")


def _entries(parent: Path, pattern: str) -> list[Path]:
    try:
        return sorted(parent.glob(pattern))
    except OSError:
        return []
