"""Plausibility and the median: what a spike, a sentinel and a silent sensor do to the trusted temperature."""

from __future__ import annotations

import pytest

from edge.service.thermal.readings import Window, hottest_c, plausible_c


@pytest.mark.parametrize("millidegrees", [-273150, 0, 1, 55, 999, -650788984, 2**31, 151_000, -41_000])
def test_what_no_processor_shows_is_absent(millidegrees: int) -> None:
    """TH-01, TH-03: sentinels and bogus values are no temperature, least of all a cool one."""
    assert plausible_c(millidegrees) is None


@pytest.mark.parametrize(("millidegrees", "celsius"), [(55_000, 55.0), (-10_000, -10.0), (1000, 1.0), (104_500, 104.5)])
def test_real_readings_are_kept(millidegrees: int, celsius: float) -> None:
    assert plausible_c(millidegrees) == celsius


def test_the_hottest_sensor_counts() -> None:
    assert hottest_c([None, 40.0, 71.5, None]) == 71.5
    assert hottest_c([None, None]) is None
    assert hottest_c([]) is None


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
