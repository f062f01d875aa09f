"""Where this device's power comes from, read from a sysfs-shaped tree.

Rules: no battery means mains. A battery that discharges, be it on a charger that is too weak, or whose state cannot be
told, counts as `battery` or `unknown`, never as mains, so that nothing is planned on power that may not be there. Of
several batteries the charge of all together counts: which one is used first is the firmware's affair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from edge.devices.kernel_files import text_of


class PowerSource(StrEnum):
    """What feeds the device now."""

    MAINS = "mains"
    BATTERY = "battery"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Power:
    """Source, and charge of the battery in percent; None where there is none or no plausible reading."""

    source: PowerSource
    battery_percent: float | None = None


def read_power(sysfs: Path) -> Power:
    """The state under `class/power_supply` of `sysfs`; a missing or unreadable entry is absent, never zero."""
    try:
        supplies = sorted((sysfs / "class" / "power_supply").iterdir())
    except OSError:
        return Power(PowerSource.MAINS)
    batteries = [supply for supply in supplies if _is_of_device(supply)]
    if not batteries:
        return Power(PowerSource.MAINS)
    online = {text_of(s / "online") for s in supplies if _is_charger(s)}
    states = {text_of(b / "status") for b in batteries}
    return Power(_source(online, states), _percent(batteries))


def _is_of_device(supply: Path) -> bool:
    """Whether it is a battery that feeds the device: not that of a mouse or a headset, and no empty bay."""
    kind, scope, present = (text_of(supply / name) for name in ("type", "scope", "present"))
    return kind in ("Battery", "UPS") and scope != "Device" and present != "0"


def _is_charger(supply: Path) -> bool:
    """Whether it feeds the device from outside. Some drivers say which kind of USB it is, such as `USB_PD`."""
    kind = text_of(supply / "type") or ""
    return kind in ("Mains", "Wireless") or kind.partition("_")[0] == "USB"


def _source(online: set[str | None], states: set[str | None]) -> PowerSource:
    if "Charging" in states:
        return PowerSource.MAINS
    if "Discharging" in states:
        return PowerSource.BATTERY
    if "1" in online:
        return PowerSource.MAINS
    return PowerSource.BATTERY if online == {"0"} else PowerSource.UNKNOWN


def _percent(batteries: list[Path]) -> float | None:
    """Charge of those that tell theirs, each by what it can hold; by equal parts where one does not say."""
    told = [(percent, each) for each in batteries if (percent := _number(each / "capacity", most=100.0)) is not None]
    if not told:
        return None
    for name in ("energy_full", "charge_full"):
        sizes = [_number(each / name) or 0.0 for _, each in told]
        if all(sizes):
            break
    else:
        sizes = [1.0] * len(told)
    return sum(percent * size for (percent, _), size in zip(told, sizes, strict=True)) / sum(sizes)


def _number(path: Path, *, most: float = float("inf")) -> float | None:
    """A plausible figure: finite, and from 0 to `most`."""
    try:
        value = float(text_of(path) or "")
    except ValueError:
        return None
    return value if 0 <= value <= most and math.isfinite(value) else None
