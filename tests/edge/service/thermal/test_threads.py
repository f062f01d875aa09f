"""Threads follow the level: after a dwell, once, and again after a failure."""

from __future__ import annotations

from pathlib import Path

from edge.service.thermal.threads import ThreadsFollower
from shared.errors import NotReady
from shared.testing.clock import ManualClock
from tests.edge.service.fakes import EngineServer, FakeEngine


class _Followed:
    """A follower stepped by hand, a second at a time."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.engine = FakeEngine(EngineServer(folder / "engine.sock"))
        self.wanted = 1.0
        self.room = True
        self.follower = ThreadsFollower(
            self.engine, lambda: self.wanted, has_room=lambda: self.room, clock=self.clock, dwell_s=10
        )

    async def ask(self, ratio: float, seconds: int) -> None:
        self.wanted = ratio
        for _ in range(seconds):
            await self.follower.step()
            await self.clock.advance(1)


async def test_a_level_that_stays_takes_threads_and_gives_them_back(tmp_path: Path) -> None:
    followed = _Followed(tmp_path)
    await followed.ask(0.5, 9)
    assert followed.engine.thread_swaps == 0
    await followed.ask(0.5, 30)
    assert (followed.engine.threads_ratio, followed.engine.thread_swaps) == (0.5, 1)
    await followed.ask(1.0, 30)
    assert (followed.engine.threads_ratio, followed.engine.thread_swaps) == (1.0, 2)


async def test_a_level_that_comes_and_goes_swaps_nothing(tmp_path: Path) -> None:
    followed = _Followed(tmp_path)
    for _ in range(20):
        await followed.ask(0.5, 5)
        await followed.ask(1.0, 5)
    assert followed.engine.thread_swaps == 0


async def test_a_swap_that_fails_is_tried_again_a_dwell_later(tmp_path: Path) -> None:
    followed = _Followed(tmp_path)
    followed.engine.failures.append(NotReady("not now"))
    await followed.ask(0.5, 12)
    assert (followed.follower.ratio, followed.engine.thread_swaps) == (1.0, 0)
    await followed.ask(0.5, 12)
    assert (followed.follower.ratio, followed.engine.thread_swaps) == (0.5, 1)


async def test_heat_is_no_reason_to_need_the_memory_of_two_engines(tmp_path: Path) -> None:
    followed = _Followed(tmp_path)
    followed.room = False
    await followed.ask(0.5, 30)
    assert followed.engine.thread_swaps == 0
    followed.room = True
    await followed.ask(0.5, 2)
    assert followed.engine.thread_swaps == 1
