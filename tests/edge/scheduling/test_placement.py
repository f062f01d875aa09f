"""The placement of a chain is the optimum: held against every placement there is."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.scheduling.placement import HOST, handovers_s, place, total_s

INFINITE = math.inf


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[list[float]], list[list[float]]]:
    """Seconds by operator and unit, the processor's always finite; and what each boundary costs each unit."""
    units, count = draw(st.integers(1, 3)), draw(st.integers(1, 7))
    time = st.floats(0, 100)
    seconds = [
        [draw(time), *(draw(st.one_of(time, st.just(INFINITE))) for _ in range(units - 1))] for _ in range(count)
    ]
    links = [[0.0, *(draw(st.floats(0, 50)) for _ in range(units - 1))] for _ in range(count + 1)]
    return seconds, links


@given(problems())
def test_it_is_the_best_of_all_placements(problem: tuple[list[list[float]], list[list[float]]]) -> None:
    seconds, links = problem

    def handover(index: int, source: int, target: int) -> float:
        return links[index + 1][source] + links[index + 1][target]

    found = total_s(place(seconds, handover), seconds, handover)
    units = range(len(seconds[0]))
    best = min(total_s(each, seconds, handover) for each in itertools.product(units, repeat=len(seconds)))
    assert found == pytest.approx(best, rel=1e-9, abs=1e-9)


@given(st.integers(1, 3), st.integers(1, 6), st.data())
def test_handovers_may_differ_by_pair_and_direction(units: int, count: int, data: st.DataObject) -> None:
    table = {
        key: data.draw(st.floats(0, 10)) for key in itertools.product(range(-1, count), range(units), range(units))
    }
    seconds = [[data.draw(st.floats(0, 10)) for _ in range(units)] for _ in range(count)]

    def handover(index: int, source: int, target: int) -> float:
        return table[index, source, target]

    found = total_s(place(seconds, handover), seconds, handover)
    best = min(total_s(each, seconds, handover) for each in itertools.product(range(units), repeat=count))
    assert found == pytest.approx(best, rel=1e-9, abs=1e-9)


def test_staying_costs_nothing_and_the_way_in_and_out_counts() -> None:
    def handover(index: int, source: int, target: int) -> float:
        assert source != target
        return 1.0

    assert place([], handover) == ()
    assert place([[5.0, 1.0]], handover) == (1,)  # 1 + 2 handovers
    assert place([[2.9, 1.0]], handover) == (HOST,)
    assert handovers_s((1, 1, 0, 1), handover) == 4.0
    assert total_s((HOST, HOST), [[1.0, 9.0], [2.0, 9.0]], handover) == 3.0


def test_what_is_refused_is_never_placed_there() -> None:
    seconds = [[10.0, 1.0], [10.0, INFINITE], [10.0, 1.0]]
    assert place(seconds, lambda index, source, target: 0.1) == (1, 0, 1)
