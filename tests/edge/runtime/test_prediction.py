"""How measurements of speed are taken in turns: a slow minute of the machine is no property of one context."""

from __future__ import annotations

import asyncio
from typing import cast

from edge.runtime.prediction import _measured
from edge.runtime.speed import Speed, SpeedBench, middle_of


class _Bench:
    """A device whose times are known, and which is slow while the asked numbers of measurements are made."""

    def __init__(self, slow: set[int]) -> None:
        self.asked: list[int] = []
        self._slow = slow

    async def speed(self, context_tokens: int, repetitions: int) -> Speed:
        assert repetitions >= 1
        factor = 3.0 if len(self.asked) in self._slow else 1.0
        self.asked.append(context_tokens)
        return Speed(1, context_tokens, factor * context_tokens, factor, factor * context_tokens, factor)


def test_contexts_take_turns_and_are_measured_equally_often() -> None:
    bench = _Bench(set())
    found = asyncio.run(_measured(cast("SpeedBench", bench), [63, 128, 4096]))
    assert bench.asked == [63, 128, 4096, 4096, 128, 63, 63, 128, 4096]
    assert list(found) == [63, 128, 4096]


def test_a_slow_round_changes_nothing() -> None:
    for slow in ({0, 1, 2}, {3, 4, 5}, {6, 7, 8}):
        found = asyncio.run(_measured(cast("SpeedBench", _Bench(slow)), [63, 128, 4096]))
        even = asyncio.run(_measured(cast("SpeedBench", _Bench(set())), [63, 128, 4096]))
        assert found == even


def test_the_middle_is_taken_time_by_time() -> None:
    speeds = [Speed(2, 9, *times) for times in ((1, 9, 5, 2), (2, 8, 4, 1), (3, 7, 6, 3))]
    assert middle_of(speeds) == Speed(2, 9, 2, 8, 5, 2)
