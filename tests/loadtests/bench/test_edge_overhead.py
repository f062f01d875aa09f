"""The interval that the benchmark of the agent's cost prints."""

from __future__ import annotations

import random
from statistics import median

import pytest

from loadtests.bench.edge_overhead import Sample, added_ms, is_narrow, median_interval


@pytest.mark.parametrize("count", [30, 90])
def test_the_interval_holds_the_median_as_often_as_it_says(count: int) -> None:
    """Of a skewed distribution, whose true median is ln 2."""
    draw = random.Random(7)
    found = [median_interval([draw.expovariate(1.0) for _ in range(count)]) for _ in range(2_000)]
    held = sum(low <= 0.6931 <= high for low, high in found) / len(found)
    assert 0.935 <= held <= 0.985


@pytest.mark.parametrize("values", [[3.0], [1.0, 2.0], [5.0, 1.0, 4.0, 2.0, 3.0]])
def test_few_values_are_bounded_by_themselves(values: list[float]) -> None:
    low, high = median_interval(values)
    assert min(values) <= low <= median(values) <= high <= max(values)


def test_rounds_go_on_until_the_interval_is_narrow_wherever_it_lies() -> None:
    draw = random.Random(3)
    noise = [draw.gauss(0.0, 20.0) for _ in range(2_000)]
    needed = {}
    for shift in (0.0, 50.0):
        values = [value + shift for value in noise]
        needed[shift] = next(count for count in range(30, len(values)) if is_narrow(values[:count]))
    assert needed[0.0] == needed[50.0]
    assert needed[0.0] > 100


def test_what_is_added_is_of_the_same_pair() -> None:
    pairs = [{"bare": Sample(bare, 1.0), "agent": Sample(agent, 1.0)} for bare, agent in ((100, 103), (200, 199))]
    assert added_ms(pairs) == [3, -1]
