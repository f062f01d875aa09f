"""Passes events on to everyone who watches; who reads slowly gets the newest state and a bounded part of the rest."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator

from shared.errors import Overloaded

LIMIT_WATCHERS = 64
_PENDING = 256
"""Decisions that wait for one slow watcher; older ones are dropped, and it is told how many."""


def event(kind: str, data: bytes) -> bytes:
    """One server-sent event; `data` is JSON, and so one line."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), data)


class Watcher:
    """What one watcher has not read yet."""

    def __init__(self) -> None:
        self._state: dict[str, bytes] = {}
        self._each: deque[bytes] = deque()
        self._missed = 0
        self._arrived = asyncio.Event()

    def put_state(self, kind: str, data: bytes) -> None:
        """A state replaces an earlier one of its kind that was not read."""
        self._state[kind] = data
        self._arrived.set()

    def put_each(self, data: bytes) -> None:
        """One of a series, each of which counts."""
        if len(self._each) >= _PENDING:
            self._each.popleft()
            self._missed += 1
        self._each.append(data)
        self._arrived.set()

    def put_missed(self, count: int) -> None:
        """So many of the series were dropped before they came here."""
        self._missed += count
        self._arrived.set()

    async def next(self, wait_s: float) -> bytes:
        """Everything that has arrived, as events; empty after `wait_s` without any."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._arrived.wait()
        self._arrived.clear()
        parts = [event("missed", b'{"decisions":%d}' % self._missed)] if self._missed else []
        parts += [event("decision", data) for data in self._each]
        parts += [event(kind, data) for kind, data in self._state.items()]
        self._each.clear()
        self._state.clear()
        self._missed = 0
        return b"".join(parts)


class Hub:
    """All watchers."""

    def __init__(self) -> None:
        self._watchers: set[Watcher] = set()

    @property
    def watched(self) -> bool:
        """Whether anyone is there: else nothing needs to be made ready."""
        return bool(self._watchers)

    @contextlib.contextmanager
    def watching(self) -> Iterator[Watcher]:
        """Take part for as long as the block runs.

        Raises:
            Overloaded: as many watch as may.
        """
        if len(self._watchers) >= LIMIT_WATCHERS:
            raise Overloaded(f"{LIMIT_WATCHERS} watch already, and no more may.")
        watcher = Watcher()
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)

    def state(self, kind: str, data: bytes) -> None:
        """Tell everyone the newest state of that kind."""
        for each in self._watchers:
            each.put_state(kind, data)

    def missed(self, count: int) -> None:
        """Tell everyone that so many decisions of other workers were dropped before they came here."""
        for each in self._watchers:
            each.put_missed(count)

    def decision(self, data: bytes) -> None:
        """Tell everyone of one decision."""
        for each in self._watchers:
            each.put_each(data)
