"""Ends a stream that has gone silent: one timer a stream, looked at when it fires, instead of one for every read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from router.dispatch.wire.answer import Answer

_T = TypeVar("_T")


class SilentTooLong(Exception):
    """Nothing came within the limit."""


class Silence:
    """Watches the reads of one stream. Only time spent waiting for the backend counts, never that of a slow client."""

    def __init__(self, answer: Answer, limit_s: float) -> None:
        self._answer = answer
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._progress = -1
        self._until_s = 0.0
        self._reading = False
        self._timer: asyncio.TimerHandle | None = self._loop.call_later(limit_s, self._look)

    async def watched(self, read: Awaitable[_T], progress: int) -> _T:
        """Wait for one read. `progress` grows with each event that counts; while it stays, the limit goes on running.

        Raises:
            SilentTooLong: in the place of the read.
        """
        if progress != self._progress:
            self._progress, self._until_s = progress, self._loop.time() + self._limit_s
        self._reading = True
        try:
            return await read
        finally:
            self._reading = False

    def close(self) -> None:
        """Watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        left_s = self._until_s - self._loop.time()
        if self._reading and left_s <= 0:
            self._timer = None
            self._answer.fail(SilentTooLong())
            return
        self._timer = self._loop.call_later(left_s if left_s > 0 else self._limit_s, self._look)
