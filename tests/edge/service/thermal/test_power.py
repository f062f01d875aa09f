"""TH-05: batteries that are absent, silent for a moment, or say nonsense."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.devices.power import Power, PowerSource
from edge.service.thermal import sensors
from edge.service.thermal.power import CARRIED_SAMPLES, BatteryRules, FloorState, PowerState, floor, on_mains
from shared.fleet import ThermalLevel

MAINS = Power(PowerSource.MAINS)
LOW = Power(PowerSource.BATTERY, 15.0)


def _floor(power: Power | None) -> ThermalLevel | None:
    return floor(power, BatteryRules(low_percent=20, critical_percent=5, empty_percent=2))


@pytest.mark.parametrize(
    ("power", "expected"),
    [
        (None, None),
        (MAINS, None),
        (Power(PowerSource.MAINS, 3.0), None),
        (Power(PowerSource.BATTERY, 80.0), None),
        (LOW, ThermalLevel.WARM),
        (Power(PowerSource.BATTERY, 2.0), ThermalLevel.HOT),
        (Power(PowerSource.BATTERY, 1.0), ThermalLevel.CRITICAL),
        (Power(PowerSource.BATTERY), ThermalLevel.WARM),
        (Power(PowerSource.UNKNOWN, 100.0), None),
        (Power(PowerSource.UNKNOWN, 15.0), ThermalLevel.WARM),
        (Power(PowerSource.UNKNOWN), ThermalLevel.WARM),
    ],
)
def test_what_the_battery_asks_for(power: Power | None, expected: ThermalLevel | None) -> None:
    """TH-05: unknown plugged state counts as discharging; it costs something only when the charge is low."""
    assert _floor(power) is expected


def test_one_missing_sample_changes_nothing() -> None:
    """TH-05"""
    state = PowerState().after(LOW)
    for gap in (None, Power(PowerSource.UNKNOWN), Power(PowerSource.BATTERY), Power(PowerSource.UNKNOWN, 15.0)):
        assert state.after(gap).power == LOW


def test_what_is_missing_for_long_is_unknown() -> None:
    state = PowerState().after(LOW)
    for _ in range(CARRIED_SAMPLES + 1):
        state = state.after(None)
    assert state.power is None
    assert state.after(MAINS) == PowerState(MAINS)


def test_unknown_is_null_and_not_zero() -> None:
    assert on_mains(None) is None
    assert on_mains(Power(PowerSource.UNKNOWN, 50.0)) is None
    assert on_mains(MAINS) is True
    assert on_mains(LOW) is False


@pytest.mark.parametrize("capacity", ["101", "-1", "N/A", "", "255"])
def test_a_charge_that_cannot_be_is_absent(tmp_path: Path, capacity: str) -> None:
    """TH-05: percent above 100."""
    battery = tmp_path / "class/power_supply/BAT0"
    battery.mkdir(parents=True)
    (battery / "type").write_text("Battery\n")
    (battery / "status").write_text("Discharging\n")
    (battery / "capacity").write_text(capacity)
    power = sensors.read([tmp_path / "none", tmp_path], ()).power
    assert power.battery_percent is None
    assert power.source is PowerSource.BATTERY


def test_a_loose_plug_changes_the_floor_at_most_once_a_dwell() -> None:
    """TH-05: raised at once, lowered only after a dwell without demand."""
    state, levels = FloorState(), []
    for second in range(120):
        state = state.after(ThermalLevel.WARM if second % 2 else None, second * 1000, 10_000)
        levels.append(state.level)
    assert levels[0] is None
    assert set(levels[1:]) == {ThermalLevel.WARM}
    for second in range(120, 140):
        state = state.after(None, second * 1000, 10_000)
    assert state.level is None


def test_a_floor_rises_at_once() -> None:
    state = FloorState(ThermalLevel.WARM, lower_since_ms=0)
    assert state.after(ThermalLevel.CRITICAL, 1, 10_000).level is ThermalLevel.CRITICAL
