"""An engine that lives and does not work is found; one that is merely busy is left alone."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from edge.runtime.liveness import Doubt, LivenessRules, until_hung
from shared.testing.clock import ManualClock

RULES = LivenessRules(interval_s=5, answer_limit_s=1, misses=3, token_limit_s=30)


@dataclass
class Played:
    """An engine process whose answers are scripted; healthy once the script is at its end."""

    healthy: list[bool] = field(default_factory=list)
    token: bool = True
    heard: int = 0
    hears_while_asked: int = 0
    asked: list[str] = field(default_factory=list)

    async def answers(self, limit_s: float) -> bool:
        assert limit_s == RULES.answer_limit_s
        self.asked.append("health")
        return self.healthy.pop(0) if self.healthy else True

    async def computes(self, limit_s: float) -> bool:
        assert limit_s == RULES.token_limit_s
        self.asked.append("token")
        self.heard += self.hears_while_asked
        return self.token


async def _watched(engine: Played, doubt: Doubt | None = None) -> tuple[ManualClock, asyncio.Task[str]]:
    clock = ManualClock()
    task = asyncio.create_task(until_hung(engine, doubt or Doubt(), RULES, clock))
    await _settle()
    return clock, task


async def _settle() -> None:
    """Let the watch run until it waits for the clock again."""
    for _ in range(20):
        await asyncio.sleep(0)


async def _interval(clock: ManualClock) -> None:
    await clock.advance(RULES.interval_s)
    await _settle()


async def test_an_engine_that_misses_often_enough_hangs() -> None:
    engine = Played(healthy=[True, False, False, False])
    clock, task = await _watched(engine)
    for _ in range(3):
        await _interval(clock)
        assert not task.done()
    await _interval(clock)
    assert await task == "The engine did not answer 3 times in a row."


async def test_an_answer_in_between_forgets_the_misses() -> None:
    engine = Played(healthy=[False, False, True, False, False, True])
    clock, task = await _watched(engine)
    for _ in range(8):
        await _interval(clock)
    assert not task.done()
    assert engine.asked == ["health"] * 8
    task.cancel()


async def test_a_doubted_engine_that_computes_nothing_hangs() -> None:
    """Its HTTP side may still answer while its computation stands still."""
    doubt, engine = Doubt(), Played(token=False)
    _, task = await _watched(engine, doubt)
    doubt.raise_()
    assert await asyncio.wait_for(task, 10) == "The engine computed nothing for 30 s."
    assert engine.asked == ["token"]


async def test_a_doubted_engine_that_is_full_is_left_alone() -> None:
    """Others hold all of its slots, and what it computes for them is heard."""
    doubt, engine = Doubt(), Played(token=False, hears_while_asked=1)
    clock, task = await _watched(engine, doubt)
    doubt.raise_()
    await _settle()
    await _interval(clock)
    assert not task.done()
    assert engine.asked[:2] == ["token", "health"]
    assert engine.asked.count("token") == 1
    task.cancel()
