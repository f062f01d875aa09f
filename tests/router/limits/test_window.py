"""The arithmetic of a minute: never more than the limit in any sixty seconds, whatever the moments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.limits.window import Window


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 5)), min_size=1, max_size=120), st.integers(5, 40))
def test_no_sixty_seconds_hold_more_than_the_limit(steps: list[tuple[int, int]], limit: int) -> None:
    window, now_ms, granted = Window(), 0, []
    for gap_ms, amount in steps:
        now_ms += gap_ms
        window.roll(now_ms)
        if window.wait_ms(amount, limit, now_ms) == 0:
            window.add(amount, now_ms)
            granted.append((now_ms, amount))
        for end_ms, _ in granted:
            assert sum(a for at, a in granted if end_ms - 60_000 < at <= end_ms) <= limit


@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=60), st.integers(1, 10))
def test_after_the_wait_that_was_named_it_fits_and_not_a_moment_sooner(gaps: list[int], limit: int) -> None:
    window, now_ms = Window(), 0
    for gap_ms in gaps:
        now_ms += gap_ms
        window.roll(now_ms)
        wait_ms = window.wait_ms(1, limit, now_ms)
        if wait_ms == 0:
            window.add(1, now_ms)
            continue
        for later_ms, fits in ((wait_ms - 1, False), (wait_ms, True)):
            ahead = Window()
            for second, amount in window._amounts:
                ahead.add(amount, second * 1000)
            ahead.roll(now_ms + later_ms)
            assert (ahead.wait_ms(1, limit, now_ms + later_ms) == 0) is fits


def test_corrections_stay_where_they_belong_and_never_below_zero() -> None:
    window = Window()
    window.add(10, 0)
    window.add(5, 10_000)
    window.correct(-50, 0, 20_000)
    assert window.used == 5
    window.correct(3, 10, 20_000)
    assert (window.used, window.reset_ms(20_000)) == (8, 51_000)
    window.correct(-3, 10, 90_000)
    assert window.used == 0, "what is a minute old was forgotten already"
    window.correct(4, 10, 90_000)
    assert (window.used, window.reset_ms(90_000)) == (4, 61_000)
