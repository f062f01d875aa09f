"""Which threads, spinning and batch follow from what was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.scheduling.tuning import (
    STALL_BUDGET_S,
    Batch,
    Speeds,
    Spin,
    Threads,
    Trial,
    candidates,
    choose_batch,
    choose_threads,
)

LONG, BRIEF = Spin.LONG, Spin.BRIEF


def trial(threads: int, spin: Spin, alone: tuple[float, float], busy: tuple[float, float]) -> Trial:
    """Decode and prefill speeds, alone and beside a busy process."""
    return Trial(threads, spin, Speeds(*alone), Speeds(*busy))


ONE = trial(1, LONG, (141, 228), (138, 220))


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        (1, [(1, LONG)]),
        (2, [(1, LONG), (2, LONG), (2, BRIEF)]),
        (4, [(3, LONG), (4, LONG), (2, LONG), (1, LONG), (3, BRIEF), (4, BRIEF), (2, BRIEF)]),
    ],
)
def test_what_is_tried_begins_with_what_would_be_chosen_unmeasured(
    cores: int, expected: list[tuple[int, Spin]]
) -> None:
    assert list(candidates(cores)) == expected


def test_threads_that_collapse_beside_a_busy_process_are_never_chosen() -> None:
    """Measured on two cores: alone two threads read 1.8 times as fast, beside a busy process 70 times slower."""
    collapsing = trial(2, LONG, (158, 405), (1.9, 12))
    assert choose_threads([ONE, collapsing]) == Threads(1, 1, LONG)


def test_brief_spinning_is_taken_where_it_makes_more_threads_stand() -> None:
    """Each phase has its own number of threads; one thread waits for nobody, however it spins."""
    collapsing = trial(2, LONG, (158, 405), (1.9, 12))
    standing = trial(2, BRIEF, (90, 380), (85, 210))
    assert choose_threads([ONE, collapsing, standing]) == Threads(1, 2, BRIEF)


def test_fewer_threads_are_taken_where_more_are_hardly_faster() -> None:
    assert choose_threads([ONE, trial(2, LONG, (143, 230), (138, 220))]) == Threads(1, 1, LONG)


def test_a_machine_that_bears_all_cores_gets_them() -> None:
    assert choose_threads([ONE, trial(2, LONG, (250, 400), (130, 200))]) == Threads(2, 2, LONG)


def test_where_each_phase_stands_with_another_spinning_the_best_beside_company_is_taken() -> None:
    split = [trial(2, LONG, (100, 400), (90, 10)), trial(2, BRIEF, (80, 390), (20, 300))]
    assert choose_threads(split) == Threads(2, 2, BRIEF)


def test_nothing_tried_is_nothing_chosen() -> None:
    with pytest.raises(ValueError, match="nothing"):
        choose_threads([])


@given(speeds=st.lists(st.tuples(*[st.floats(0.1, 1e4)] * 4), min_size=2, max_size=2), alone=st.floats(0.1, 1e4))
def test_what_is_chosen_runs_at_half_of_the_best_beside_a_busy_process(
    speeds: list[tuple[float, float, float, float]], alone: float
) -> None:
    """Whatever else was measured, where one thread stands in both phases."""
    busy = (max(each[2] for each in speeds), max(each[3] for each in speeds))
    more = [trial(2, spin, each[:2], each[2:]) for spin, each in zip(Spin, speeds, strict=True)]
    trials = [trial(1, LONG, (alone, alone), busy), *more]
    chosen = choose_threads(trials)
    ran = {each.threads: each for each in trials if each.threads == 1 or each.spin is chosen.spin}
    assert 2 * ran[chosen.decode].busy.decode_tokens_per_s >= busy[0]
    assert 2 * ran[chosen.prefill].busy.prefill_tokens_per_s >= busy[1]


def test_the_batch_is_the_largest_whose_stall_stays_within_the_budget_at_depth() -> None:
    """0.3 s at the beginning, 0.8 s at the end of 1,500 tokens: a batch of half the size is taken."""
    growing = [Batch(past, 126, 0.3 + 0.5 * past / 1500) for past in range(0, 1500, 126)]
    batch_tokens, stall_s = choose_batch(growing, (126, 63, 32))
    assert batch_tokens == 63
    assert stall_s == pytest.approx(0.4)


def test_a_prompt_that_was_left_early_is_extended_in_a_straight_line() -> None:
    early = [Batch(past, 126, 0.3 + 0.5 * past / 1500) for past in range(0, 500, 126)]
    assert choose_batch(early, (126, 63, 32))[1] == pytest.approx(0.4)


def test_a_fast_device_keeps_the_large_batch_and_a_slow_one_gets_the_smallest() -> None:
    assert choose_batch([Batch(0, 126, 0.05), Batch(126, 126, 0.06)], (126, 63, 32))[0] == 126
    slow = choose_batch([Batch(0, 126, 20.0)], (126, 63, 32))
    assert slow == (32, pytest.approx(32 * 20 / 126))
    assert slow[1] > STALL_BUDGET_S
