"""Plausibility and the median: what a spike, a sentinel and a silent sensor do to the trusted temperature."""

from __future__ import annotations

import pytest

from edge.service.thermal.readings import SensorRule, Window, plausible_c


@pytest.mark.parametrize("millidegrees", [-273150, 0, 1, 55, 999, -650788984, 2**31, 151_000, -41_000])
def test_what_no_processor_shows_is_absent(millidegrees: int) -> None:
    """TH-01, TH-03: sentinels and bogus values are no temperature, least of all a cool one."""
    assert plausible_c(millidegrees) is None


@pytest.mark.parametrize(("millidegrees", "celsius"), [(55_000, 55.0), (-10_000, -10.0), (1000, 1.0), (104_500, 104.5)])
def test_real_readings_are_kept(millidegrees: int, celsius: float) -> None:
    assert plausible_c(millidegrees) == celsius


@pytest.mark.parametrize(
    ("raw", "rule", "celsius"),
    [
        (55, SensorRule("*", degrees_per_unit=1.0), 55.0),
        (550, SensorRule("*", degrees_per_unit=0.1), 55.0),
        (3282, SensorRule("*", degrees_per_unit=0.1, offset_c=-273.2), 55.0),
        (82_000, SensorRule("*", offset_c=-27.0), 55.0),
        (0, SensorRule("*", degrees_per_unit=1.0, lowest_c=1.0), None),
        (55_000, SensorRule("*", highest_c=50.0), None),
    ],
)
def test_a_rule_gives_a_sensor_its_scale_and_bounds(raw: float, rule: SensorRule, celsius: float | None) -> None:
    assert plausible_c(raw, rule) == celsius


def _fed(*readings: float | None) -> Window:
    window = Window()
    for reading in readings:
        window = window.after(reading)
    return window


def test_nothing_is_trusted_before_the_window_is_full() -> None:
    assert _fed(55.0, 55.0).temperature_c is None
    assert _fed(55.0, 55.0, 56.0).temperature_c == 55.0


def test_one_spike_is_outvoted() -> None:
    """TH-03"""
    assert _fed(55.0, 55.0, None, 85.0, 55.0, 55.0).temperature_c == 55.0
    assert _fed(55.0, 55.0, 85.0).temperature_c == 55.0


def test_a_missing_reading_is_bridged_and_a_silent_sensor_is_unknown() -> None:
    assert _fed(55.0, 55.0, 55.0, None, None).temperature_c == 55.0
    assert _fed(55.0, 55.0, 55.0, None, None, None).temperature_c is None
    assert _fed(55.0, 55.0, 55.0, None, None, None, 50.0, 50.0, 50.0).temperature_c == 50.0


def test_movement_asks_for_the_next_reading_soon() -> None:
    assert not _fed(55.0, 55.5, 55.0).unsettled
    assert _fed(55.0, 55.0, 60.0).unsettled
    assert _fed(55.0, 55.0, 55.0, None).unsettled
    assert _fed(55.0).unsettled
    assert not _fed(None, None).unsettled  # nothing to wait for
