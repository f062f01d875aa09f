"""The ladder that gives memory back and takes it again: far enough down at once, slowly up, never back and forth."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.memory.capacity import MIB
from edge.memory.pressure import Pressure, PressureRules, Step, StepState, can_overlap, decide, shapes

RULES = PressureRules(
    low_bytes=128 * MIB, critical_bytes=64 * MIB, hysteresis_bytes=128 * MIB, settle_ms=5_000, dwell_ms=30_000
)
SERVED = (
    Step(4, 8192, 800 * MIB),
    Step(2, 8192, 450 * MIB),
    Step(1, 8192, 250 * MIB),
    Step(1, 4096, 160 * MIB),
    Step(1, 2048, 120 * MIB),
)
STEPS = (*SERVED, replace(SERVED[-1], admits=False))
LAST = len(STEPS) - 1


def reading(mib: float | None, some: float | None = 0.0, full: float | None = 0.0) -> Pressure:
    return Pressure(None if mib is None else int(mib * MIB), some, full)


def test_slots_go_first_then_context_down_to_the_minimum() -> None:
    assert shapes(4, 8192, 2048) == ((4, 8192), (2, 8192), (1, 8192), (1, 4096), (1, 2048))
    assert shapes(3, 5000, 2048) == ((3, 5000), (1, 5000), (1, 2560), (1, 2048))
    assert shapes(1, 2048, 2048) == ((1, 2048),)
    assert shapes(1, 1024, 2048) == ((1, 1024),)


@pytest.mark.parametrize(
    ("rung", "mib", "expected"),
    [
        (0, 129, 0),
        (0, 127, 1),
        (0, 65, 1),
        (1, 100, 2),
        (2, 65, 3),
        (3, 100, 4),
        (3, 65, 5),  # even the smallest engine gives back too little
        (4, 100, 5),
        (0, 63, LAST),
        (2, 0, LAST),
        (LAST, 10, LAST),
    ],
)
def test_a_shortage_is_met_by_the_first_step_that_gives_enough_back(rung: int, mib: float, expected: int) -> None:
    assert decide(StepState(rung), reading(mib), STEPS, 0, RULES).rung == expected


@pytest.mark.parametrize("stall", [{"some": 10.0}, {"full": 10.0}])
def test_stalls_count_as_a_shortage_even_where_memory_seems_available(stall: dict[str, float]) -> None:
    assert decide(StepState(), reading(4096, **stall), STEPS, 0, RULES).rung == 1
    assert decide(StepState(), reading(None, **stall), STEPS, 0, RULES).rung == 1


def test_a_step_down_is_given_time_to_help_unless_it_gets_critical() -> None:
    state = decide(StepState(), reading(100), STEPS, 1_000, RULES)
    assert state == StepState(1, 1_000)
    assert decide(state, reading(100), STEPS, 5_999, RULES).rung == 1
    assert decide(state, reading(100), STEPS, 6_000, RULES).rung == 2
    assert decide(state, reading(50), STEPS, 1_001, RULES).rung == LAST


def test_memory_comes_back_one_step_a_dwell_and_only_where_the_larger_engine_fits_beside_the_smaller() -> None:
    state = StepState(2, 0)
    plenty = reading(128 + 128 + 450)
    state = decide(state, plenty, STEPS, 1_000, RULES)
    assert state.rung == 2
    assert decide(state, plenty, STEPS, 30_999, RULES).rung == 2
    up = decide(state, plenty, STEPS, 31_000, RULES)
    assert (up.rung, up.calm_since_ms) == (1, None)
    assert decide(state, reading(128 + 128 + 449), STEPS, 31_000, RULES) == StepState(2, 0)


def test_refusing_ends_without_a_swap_when_there_is_room_for_new_work() -> None:
    state = decide(StepState(LAST, 0), reading(256), STEPS, 0, RULES)
    assert decide(state, reading(256), STEPS, 30_000, RULES).rung == LAST - 1


@pytest.mark.parametrize("interruption", [reading(100), reading(None, None, None), reading(8192, some=6.0)])
def test_calm_that_is_interrupted_begins_again(interruption: Pressure) -> None:
    state = decide(StepState(LAST, -60_000), reading(8192), STEPS, 0, RULES)
    state = decide(state, interruption, STEPS, 20_000, RULES)
    assert state.calm_since_ms is None
    state = decide(state, reading(8192), STEPS, 21_000, RULES)
    assert decide(state, reading(8192), STEPS, 50_999, RULES).rung == LAST


def test_a_reading_that_says_nothing_changes_nothing() -> None:
    assert decide(StepState(3, 7), Pressure(None), STEPS, 10**9, RULES) == StepState(3, 7)


def test_two_engines_stand_side_by_side_only_above_the_critical_mark() -> None:
    assert can_overlap(SERVED[1], (450 + 64) * MIB, RULES)
    assert not can_overlap(SERVED[1], (450 + 63) * MIB, RULES)
    assert not can_overlap(SERVED[1], None, RULES)


@given(
    readings=st.lists(
        st.tuples(st.one_of(st.none(), st.integers(0, 4096)), st.floats(0, 100), st.integers(0, 40_000)), max_size=60
    )
)
def test_whatever_is_read_the_rung_exists_and_never_rises_faster_than_the_dwell(
    readings: list[tuple[int | None, float, int]],
) -> None:
    state, now_ms, last_up_ms = StepState(), 0, None
    for mib, some, passed_ms in readings:
        now_ms += passed_ms
        after = decide(state, reading(mib, some), STEPS, now_ms, RULES)
        assert 0 <= after.rung <= LAST
        if mib is not None and mib < 64:
            assert not STEPS[after.rung].admits
        if after.rung < state.rung:
            assert after.rung == state.rung - 1
            assert last_up_ms is None or now_ms - last_up_ms >= RULES.dwell_ms
            last_up_ms = now_ms
        state = after


@pytest.mark.parametrize("others_mib", range(0, 1_701, 50))
def test_memory_that_stays_as_it_is_is_answered_once_and_then_left_alone(others_mib: int) -> None:
    """A step down frees memory; that memory alone must not look like room for the step up again."""
    state, last_change = StepState(), 0
    for second in range(600):
        free_mib = 1_700 - others_mib - STEPS[state.rung].private_bytes / MIB
        after = decide(state, reading(free_mib), STEPS, second * 1_000, RULES)
        last_change = second if after.rung != state.rung else last_change
        state = after
    assert last_change < 300
