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
        self._tasks: dict[asyncio.Task[Exchange], Exchange] = {}
        self._winner: Exchange | None = None

    def enter(self, exchange: Exchange, opened: Coroutine[Any, Any, Exchange]) -> None:
        """Start one attempt; `opened` opens `exchange`."""
        task = asyncio.create_task(opened)
        task.add_done_callback(_seen)
        self._tasks[task] = exchange

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
                    failure = failed(self._tasks[task].candidate, error)
                    continue
                self._winner = exchange
                attempts.remove(exchange.attempt)
                attempts.append(exchange.attempt)
                return exchange
            if failure is not None and not pending:
                return failure

    def close(self) -> None:
        """Let go of all but the winner, at once: whoever waited here could be cancelled, and lose the winner too."""
        left = Outcome.CLIENT_LEFT if self._winner is None else Outcome.HEDGE_LOST
        for task, exchange in self._tasks.items():
            task.cancel()
            if exchange is not self._winner:
                exchange.close(left)


def _seen(task: asyncio.Task[Exchange]) -> None:
    """Take note of how a task ended that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
