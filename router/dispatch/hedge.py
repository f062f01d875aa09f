"""Runs attempts at two backends beside each other; the first that has content wins, and the other is let go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from router.audit.account import Attempt
from router.dispatch.exchange import AttemptFailed, Exchange
from router.dispatch.verdict import Outcome
from router.policy.model import Candidate


class Race:
    """Use: `enter` each, `settled` or `won`, and `close` in any case."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Exchange], Candidate] = {}
        self._winner: Exchange | None = None

    def enter(self, candidate: Candidate, attempt: Coroutine[Any, Any, Exchange]) -> None:
        """Start one attempt."""
        self._tasks[asyncio.create_task(attempt)] = candidate

    async def settled(self, limit_s: float) -> bool:
        """Whether an attempt ended within `limit_s`."""
        done, _ = await asyncio.wait(self._tasks, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)

    async def won(
        self, attempts: list[Attempt], failed: Callable[[Candidate, AttemptFailed], AttemptFailed]
    ) -> Exchange | AttemptFailed:
        """The first exchange with content, whose attempt is moved to the end of `attempts`; the last failure where
        there is none. `failed` hears of each attempt that ended without content before."""
        pending = set(self._tasks)
        while True:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            failure: AttemptFailed | None = None
            for task in [task for task in self._tasks if task in done]:
                try:
                    exchange = task.result()
                except AttemptFailed as error:
                    failure = failed(self._tasks[task], error)
                    continue
                self._winner = exchange
                attempts.remove(exchange.attempt)
                attempts.append(exchange.attempt)
                return exchange
            if failure is not None and not pending:
                return failure

    async def close(self, attempts: list[Attempt]) -> None:
        """End what still runs, and let go of whatever else has content."""
        for task in self._tasks:
            task.cancel()
        for ended in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(ended, Exchange) and ended is not self._winner:
                ended.close()
        if self._winner is None:
            return
        for attempt in attempts:
            if attempt is not self._winner.attempt and attempt.outcome == Outcome.CLIENT_LEFT:
                attempt.outcome = Outcome.HEDGE_LOST
