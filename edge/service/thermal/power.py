"""Decides what the battery means: on mains nothing, on battery a floor under the thermal level.

A battery whose plugged state is unknown is taken as discharging: the cautious reading costs speed only when the
charge is low. A state that is missing for a moment is carried over from the last one known. A floor is raised at once
and lowered only after a dwell, so that a loose plug or a charge that counts back and forth does not make the level
flap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from edge.devices.power import Power, PowerSource
from edge.service.thermal.ladder import is_severer
from shared.fleet import ThermalLevel

CARRIED_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class PowerState:
    """Power as it is believed to be, and for how many samples parts of it have been carried over."""

    power: Power | None = None
    carried: int = 0

    def after(self, reading: Power | None) -> PowerState:
        """The state after one more reading; None is one that did not come back."""
        last = self.power
        if last is None or self.carried >= CARRIED_SAMPLES or (reading is not None and _is_complete(reading)):
            return PowerState(reading, self.carried if reading is None or not _is_complete(reading) else 0)
        if reading is None:
            return PowerState(last, self.carried + 1)
        source = last.source if reading.source is PowerSource.UNKNOWN else reading.source
        percent = last.battery_percent if reading.battery_percent is None else reading.battery_percent
        return PowerState(Power(source, percent), self.carried + 1)


def first_battery(readings: list[Power]) -> Power:
    """One reading for several trees: the first that tells of a battery, else mains."""
    return next((r for r in readings if r.source is not PowerSource.MAINS or r.battery_percent is not None), _MAINS)


def on_mains(power: Power | None) -> bool | None:
    """Whether the device is plugged in; None when that cannot be told."""
    return None if power is None or power.source is PowerSource.UNKNOWN else power.source is PowerSource.MAINS


@dataclass(frozen=True, slots=True)
class BatteryRules:
    """Percent of charge below which a device on battery is at least warm, hot and critical."""

    low_percent: float
    critical_percent: float
    empty_percent: float


def floor(power: Power | None, rules: BatteryRules) -> ThermalLevel | None:
    """The least level that the battery asks for; None for no demand."""
    if power is None or power.source is PowerSource.MAINS:
        return None
    if power.battery_percent is None:
        return ThermalLevel.WARM
    if power.battery_percent < rules.empty_percent:
        return ThermalLevel.CRITICAL
    if power.battery_percent < rules.critical_percent:
        return ThermalLevel.HOT
    return ThermalLevel.WARM if power.battery_percent < rules.low_percent else None


@dataclass(frozen=True, slots=True)
class FloorState:
    """The floor in force, and since when a lower one is asked for (monotonic milliseconds)."""

    level: ThermalLevel | None = None
    lower_since_ms: int | None = None

    def after(self, demanded: ThermalLevel | None, now_ms: int, dwell_ms: int) -> FloorState:
        """The state after one more demand."""
        if self.level is None or (demanded is not None and not is_severer(self.level, demanded)):
            return FloorState(demanded)
        since_ms = now_ms if self.lower_since_ms is None else self.lower_since_ms
        return FloorState(demanded) if now_ms - since_ms >= dwell_ms else replace(self, lower_since_ms=since_ms)


_MAINS = Power(PowerSource.MAINS)


def _is_complete(power: Power) -> bool:
    return power.source is PowerSource.MAINS or (
        power.source is not PowerSource.UNKNOWN and power.battery_percent is not None
    )
