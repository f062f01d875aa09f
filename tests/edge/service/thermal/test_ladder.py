"""The ladder over time: up at once, down slowly, never cool for lack of knowledge."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.heat import table_of
from edge.service.thermal import ladder
from edge.service.thermal.ladder import LadderState, Thresholds
from edge.service.thermal.readings import Window, plausible_c
from edge.settings import LevelsSettings
from shared.fleet import ThermalLevel

LIMITS = Thresholds(warm_c=70, hot_c=80, critical_c=90, hysteresis_c=5, dwell_ms=10_000, lost_hold_ms=60_000)
STEP_MS = 1000
TABLE = table_of(LevelsSettings())


def _levels(readings: list[float | None], *, start: LadderState | None = None) -> list[ThermalLevel]:
    """The level after each raw reading, one a second, through the window."""
    window, state, levels = Window((40.0, 40.0, 40.0)), start or LadderState(ThermalLevel.NOMINAL), []
    for second, reading in enumerate(readings):
        window = window.after(reading if reading is None else plausible_c(round(reading * 1000)))
        state = ladder.step(state, window.temperature_c, second * STEP_MS, LIMITS)
        levels.append(state.level)
    return levels


def _changes(levels: list[ThermalLevel]) -> int:
    return sum(a is not b for a, b in itertools.pairwise(levels))


def test_single_spikes_change_nothing() -> None:
    """TH-03: a huge negative and a false 85 among 55."""
    assert _levels([55, 55, -650788.984, 85, 55, 55]) == [ThermalLevel.NOMINAL] * 6


def test_alternating_around_a_threshold_changes_at_most_once_a_dwell() -> None:
    """TH-03: 79, 81 for five minutes."""
    levels = _levels([79.0, 81.0] * 150)
    assert _changes(levels[3:]) <= 300 * STEP_MS // LIMITS.dwell_ms
    assert levels[-1] is ThermalLevel.HOT


def test_a_true_ramp_derates_within_three_samples_and_restores_only_below_the_lower_limit() -> None:
    """TH-03"""
    ramp = [70.0 + second for second in range(21)]
    levels = _levels(ramp)
    assert ThermalLevel.HOT in levels[: ramp.index(80.0) + 3]
    held = _levels([*[85.0] * 5, *[76.0] * 60])
    assert held[-1] is ThermalLevel.HOT  # below 80, but not below 80 - 5
    restored = _levels([*[85.0] * 5, *[74.0] * 60])
    assert restored[-1] is ThermalLevel.WARM


def test_each_rung_down_takes_a_dwell_of_its_own() -> None:
    levels = _levels([*[95.0] * 5, *[30.0] * 60])
    first = levels.index(ThermalLevel.HOT, 5)
    second = levels.index(ThermalLevel.WARM)
    third = levels.index(ThermalLevel.NOMINAL, second)
    assert levels[4] is ThermalLevel.CRITICAL
    assert second - first == third - second == LIMITS.dwell_ms // STEP_MS
    assert first - 5 >= LIMITS.dwell_ms // STEP_MS


def test_a_jump_skips_rungs_upwards() -> None:
    assert _levels([96.0, 96.0])[-1] is ThermalLevel.CRITICAL


def test_a_silent_sensor_is_unknown_and_never_cool() -> None:
    """TH-01"""
    levels = _levels([50.0, *[None] * 5])
    assert levels[-1] is ThermalLevel.UNKNOWN
    measures = ladder.measures(ThermalLevel.UNKNOWN, TABLE)
    assert measures == ladder.measures(ThermalLevel.WARM, TABLE)


@pytest.mark.parametrize("celsius", [85.0, 95.0])
def test_silence_is_no_sign_of_cooling(celsius: float) -> None:
    """TH-01: hot and critical stay in force for the holding time, then the level is unknown."""
    levels = _levels([*[celsius] * 4, *[None] * 100])
    held = levels[3]
    assert held in (ThermalLevel.HOT, ThermalLevel.CRITICAL)
    assert levels[50] is held
    assert levels[-1] is ThermalLevel.UNKNOWN


def test_a_swing_through_levels_changes_at_most_once_a_dwell() -> None:
    """TH-03: far below and far above the threshold by turns; only a rise through several levels is faster."""
    swing = [*[95.0] * 2, *[85.0] * 12, *[60.0] * 12] * 12
    levels = _levels(swing)
    changed = [n for n in range(1, len(levels)) if levels[n] is not levels[n - 1]]
    fell = [n for n in changed if ladder.is_severer(levels[n - 1], levels[n])]
    for before, after in itertools.pairwise(changed):
        if before in fell and levels[after] is not ThermalLevel.CRITICAL:
            assert (after - before) * STEP_MS >= LIMITS.dwell_ms


def test_a_sensor_that_comes_and_goes_does_not_make_the_level_flap() -> None:
    """TH-01"""
    levels = _levels([*[50.0] * 4, *([None] * 4 + [50.0] * 4) * 20])
    assert _changes(levels) == 1
    assert levels[-1] is ThermalLevel.UNKNOWN


def test_a_blind_device_that_others_show_hot_is_at_least_that_hot() -> None:
    state = LadderState(ThermalLevel.NOMINAL, last_seen_ms=0)
    assert ladder.step(state, None, 1000, LIMITS, least_c=85.0).level is ThermalLevel.HOT
    assert ladder.step(state, None, 1000, LIMITS, least_c=30.0).level is ThermalLevel.UNKNOWN
    held = LadderState(ThermalLevel.CRITICAL, last_seen_ms=0)
    assert ladder.step(held, None, 1000, LIMITS, least_c=85.0).level is ThermalLevel.CRITICAL


def test_the_next_entry() -> None:
    assert LIMITS.next_entry_c(ThermalLevel.NOMINAL) == 70
    assert LIMITS.next_entry_c(ThermalLevel.UNKNOWN) == 80
    assert LIMITS.next_entry_c(ThermalLevel.HOT) == 90
    assert LIMITS.next_entry_c(ThermalLevel.CRITICAL) is None


def test_what_each_level_takes_away() -> None:
    at = {level: ladder.measures(level, TABLE) for level in ThermalLevel}
    assert at[ThermalLevel.NOMINAL].speculation
    assert not at[ThermalLevel.WARM].speculation
    assert (at[ThermalLevel.HOT].slot_limit, at[ThermalLevel.HOT].output_cap_tokens) == (1, 256)
    assert [level for level in ThermalLevel if not at[level].admits] == [ThermalLevel.CRITICAL]
    assert at[ThermalLevel.NOMINAL].derate_ratio > at[ThermalLevel.HOT].derate_ratio > 0


def test_a_floor_raises_and_never_lowers() -> None:
    assert ladder.with_floor(ThermalLevel.NOMINAL, ThermalLevel.WARM) is ThermalLevel.WARM
    assert ladder.with_floor(ThermalLevel.HOT, ThermalLevel.WARM) is ThermalLevel.HOT
    assert ladder.with_floor(ThermalLevel.UNKNOWN, ThermalLevel.WARM) is ThermalLevel.UNKNOWN
    assert ladder.with_floor(ThermalLevel.NOMINAL, None) is ThermalLevel.NOMINAL


@given(st.lists(st.one_of(st.none(), st.floats(-300_000, 300_000, allow_nan=False)), max_size=80))
def test_no_series_ever_shows_less_heat_than_was_measured_lately(readings: list[float | None]) -> None:
    """Whatever the sensor does: while the trusted temperature is at a threshold, the level is at least that one."""
    window, state = Window(), LadderState()
    for second, reading in enumerate(readings):
        window = window.after(None if reading is None else plausible_c(round(reading * 1000)))
        state = ladder.step(state, window.temperature_c, second * STEP_MS, LIMITS)
        if window.temperature_c is None:
            assert state.level is not ThermalLevel.NOMINAL
        elif window.temperature_c >= LIMITS.critical_c:
            assert state.level is ThermalLevel.CRITICAL
        elif window.temperature_c >= LIMITS.hot_c and not _fell_lately(state, second * STEP_MS):
            assert state.level in (ThermalLevel.HOT, ThermalLevel.CRITICAL)


def _fell_lately(state: LadderState, now_ms: int) -> bool:
    return state.fell_ms is not None and now_ms - state.fell_ms < LIMITS.dwell_ms
