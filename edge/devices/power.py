"""Where this device's power comes from, read from a sysfs-shaped tree.

Rules: no battery means mains. A battery that discharges, or whose state cannot be told, counts as `battery` or
`unknown`, never as mains, so that nothing is planned on power that may not be there.
"""

from __future__ import annotations

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
    # Peripherals (a mouse, a headset) have batteries of their own, with scope Device.
    batteries = [s for s in supplies if text_of(s / "type") == "Battery" and text_of(s / "scope") != "Device"]
    if not batteries:
        return Power(PowerSource.MAINS)
    online = {text_of(s / "online") for s in supplies if text_of(s / "type") in ("Mains", "USB", "Wireless")}
    states = {text_of(b / "status") for b in batteries}
    return Power(_source(online, states), _percent(batteries[0]))


def _source(online: set[str | None], states: set[str | None]) -> PowerSource:
    if "1" in online or "Charging" in states:
        return PowerSource.MAINS
    if "Discharging" in states or online == {"0"}:
        return PowerSource.BATTERY
    return PowerSource.UNKNOWN


def _percent(battery: Path) -> float | None:
    try:
        value = float(text_of(battery / "capacity") or "")
    except ValueError:
        return None
    return value if 0 <= value <= 100 else None
