"""Decides who gets a slot of the engine: so many run, so many wait in order of arrival, everyone else hears when.

The engine's own queue is unbounded and silent, so no request reaches it without a slot from here. A request may
need several slots (`n` choices run side by side); the line stays strictly first in, first out.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from shared.clock import Clock
from shared.errors import CapacityError, QueueFull
from shared.windows import Ewma

_HOLD_ALPHA = 0.2
_HOLD_GUESS_S = 2.0
_LONGEST_RETRY_S = 60


@dataclass(slots=True, eq=False)
class _Waiter:
    need: int
    turn: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Admission:
    """Counts slots and keeps the line. All calls are made in one event loop."""

    def __init__(
        self, *, slots: int, queue_limit: int, clock: Clock, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.slots = slots
        self.queue_limit = queue_limit
        self._limit: int | None = None
        self._closed: Callable[[], CapacityError] | None = None
        self._clock = clock
        self._on_change = on_change
        self._busy = 0
        self._line: deque[_Waiter] = deque()
        self._hold_s = Ewma()

    @property
    def busy(self) -> int:
        """Slots taken now."""
        return self._busy

    @property
    def busy_ratio(self) -> float:
        """Share of all slots that works now."""
        return min(1.0, self._busy / self.slots)

    @property
    def queued(self) -> int:
        """Requests in the line now."""
        return len(self._line)

    @property
    def limit(self) -> int:
        """Slots that may be taken now: all of them, or fewer while the device is hot."""
        return self.slots if self._limit is None else min(self.slots, self._limit)

    def resize(self, slots: int) -> None:
        """Follow an engine that was started with another number of slots."""
        self.slots = slots
        self._advance()

    def restrict(self, limit: int | None) -> None:
        """Allow at most `limit` slots from now on (None: all); what runs goes on."""
        self._limit = limit
        self._advance()

    def close(self, reason: Callable[[], CapacityError]) -> None:
        """Admit nothing: those in the line and those to come get `reason()`."""
        self._closed = reason
        line, self._line = self._line, deque()
        for waiter in line:
            if not waiter.turn.done():
                waiter.turn.set_exception(reason())
        self._on_change()

    def open(self) -> None:
        """Admit again."""
        self._closed = None

    def can_admit(self, need: int) -> bool:
        """Whether a request for `need` slots would run at once."""
        return self._closed is None and not self._line and self._busy + min(need, self.limit) <= self.limit

    def wait_estimate_s(self) -> int:
        """Whole seconds until a place is likely free for one more request, from how long slots were held lately."""
        hold_s = self._hold_s.value if self._hold_s.value is not None else _HOLD_GUESS_S
        return max(1, min(_LONGEST_RETRY_S, math.ceil(hold_s * (len(self._line) + 1) / max(1, self.limit))))

    @contextlib.asynccontextmanager
    async def slot(self, need: int = 1) -> AsyncIterator[None]:
        """Hold `need` slots for as long as the block runs; leaving the line or the block gives everything back.

        Raises:
            QueueFull: the line is at its limit; `retry_after_s` is the estimate.
            CapacityError: the reason given to `close`.
        """
        need = min(need, self.slots)
        await self._enter(need)
        started_ms = self._clock.now_ms()
        try:
            yield
        finally:
            self._hold_s = self._hold_s.updated((self._clock.now_ms() - started_ms) / 1000, alpha=_HOLD_ALPHA)
            self._release(need)

    async def _enter(self, need: int) -> None:
        if self._closed is not None:
            raise self._closed()
        if self.can_admit(need):
            self._take(need)
            return
        if len(self._line) >= self.queue_limit:
            raise self._full()
        waiter = _Waiter(need)
        self._line.append(waiter)
        self._on_change()
        try:
            await waiter.turn
        except asyncio.CancelledError:
            self._leave(waiter)
            raise

    def _leave(self, waiter: _Waiter) -> None:
        if waiter.turn.done() and not waiter.turn.cancelled() and waiter.turn.exception() is None:
            self._release(waiter.need)  # the turn came in the same moment as the cancellation
            return
        with contextlib.suppress(ValueError):
            self._line.remove(waiter)
        self._advance()  # whoever stood behind a large request may fit now

    def _take(self, need: int) -> None:
        self._busy += need
        self._on_change()

    def _release(self, need: int) -> None:
        self._busy -= need
        self._advance()

    def _advance(self) -> None:
        while self._line and self._busy + min(self._line[0].need, self.limit) <= self.limit:
            waiter = self._line.popleft()
            if not waiter.turn.done():
                self._busy += waiter.need
                waiter.turn.set_result(None)
        self._on_change()

    def _full(self) -> QueueFull:
        wait_s = self.wait_estimate_s()
        return QueueFull(
            f"{self._busy} of {self.slots} slots are busy and {len(self._line)} requests wait, which is the limit; "
            f"a place is likely free in about {wait_s} s.",
            retry_after_s=wait_s,
        )
