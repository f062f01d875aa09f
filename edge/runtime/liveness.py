"""Notices an engine process that lives and does not work: one that hangs, or was stopped, never ends by itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from shared.clock import Clock


@dataclass(frozen=True, slots=True)
class LivenessRules:
    """How long an engine may be silent. Its health route is served beside the computation: a long prompt delays it by
    a second at most, so `misses` limits in a row are no busy engine."""

    interval_s: float = 5.0
    answer_limit_s: float = 5.0
    misses: int = 3
    token_limit_s: float = 30.0
    """Time in which a doubted engine must compute anything at all."""


class Watched(Protocol):
    """What the watch asks of an engine process."""

    @property
    def heard(self) -> int:
        """Grows with everything that the engine has computed for anybody."""

    async def answers(self, limit_s: float) -> bool:
        """Whether its health route answers within `limit_s`."""

    async def computes(self, limit_s: float) -> bool:
        """Whether it generates one token within `limit_s`."""


class Doubt:
    """Raised by whoever has waited too long for the engine; the watch then asks it for a token."""

    def __init__(self) -> None:
        self._raised = asyncio.Event()

    def raise_(self) -> None:
        """Have the engine checked now."""
        self._raised.set()

    async def within(self, limit_s: float, clock: Clock) -> bool:
        """Whether there is doubt; waits for it at most `limit_s`. Taking it in settles it."""
        raised = asyncio.ensure_future(self._raised.wait())
        passed = asyncio.ensure_future(clock.sleep(limit_s))
        try:
            await asyncio.wait({raised, passed}, return_when=asyncio.FIRST_COMPLETED)
            return self._raised.is_set()
        finally:
            self._raised.clear()
            for wait in (raised, passed):
                wait.cancel()
            await asyncio.gather(raised, passed, return_exceptions=True)


async def until_hung(engine: Watched, doubt: Doubt, rules: LivenessRules, clock: Clock) -> str:
    """Return when `engine` does not work any more; why, in words."""
    missed = 0
    while missed < rules.misses:
        if await doubt.within(rules.interval_s, clock):
            heard = engine.heard
            # A full engine keeps the token waiting; what it computes for others speaks for it as well.
            if not await engine.computes(rules.token_limit_s) and engine.heard == heard:
                return f"The engine computed nothing for {rules.token_limit_s:g} s."
        missed = 0 if await engine.answers(rules.answer_limit_s) else missed + 1
    return f"The engine did not answer {rules.misses} times in a row."
