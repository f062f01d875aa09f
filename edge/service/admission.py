"""Decides who gets a slot of the engine: so many run, so many wait in fair order, everyone else hears when.

The engine's own queue is unbounded and silent, so no request reaches it without a slot from here. A request may
need several slots (`n` choices run side by side); nobody overtakes it. Requests that must not run side by side share a
lane: one of them at a time, while others pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Hashable
from dataclasses import dataclass, field

from edge.service.line import FairLine
from shared.clock import Clock
from shared.errors import CapacityError, QueueFull
from shared.windows import Ewma

_HOLD_ALPHA = 0.2
_HOLD_GUESS_S = 2.0
_LONGEST_RETRY_S = 60


@dataclass(slots=True, eq=False)
class _Waiter:
    need: int
    owner: Hashable = None
    lane: Hashable | None = None
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
        self._line: FairLine[_Waiter] = FairLine()
        self._lanes: set[Hashable] = set()
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
        for waiter in self._line.clear():
            if not waiter.turn.done():
                waiter.turn.set_exception(reason())
        self._on_change()

    def open(self) -> None:
        """Admit again."""
        self._closed = None

    def can_admit(self, need: int) -> bool:
        """Whether a request for `need` slots would run at once."""
        return self._closed is None and not len(self._line) and self._busy + min(need, self.limit) <= self.limit

    def wait_estimate_s(self, position: int | None = None) -> int:
        """Whole seconds until the place `position` in the line (default: a new last one) is likely served, from how
        long slots were held lately."""
        hold_s = self._hold_s.value if self._hold_s.value is not None else _HOLD_GUESS_S
        ahead = position if position is not None else len(self._line) + 1
        return max(1, min(_LONGEST_RETRY_S, math.ceil(hold_s * ahead / max(1, self.limit))))

    @contextlib.asynccontextmanager
    async def slot(self, need: int = 1, *, owner: Hashable = None, lane: Hashable | None = None) -> AsyncIterator[None]:
        """Hold `need` slots for as long as the block runs; leaving the line or the block gives everything back.

        `owner` is whose request it is: owners take turns. Of those with the same `lane`, one runs at a time.

        Raises:
            QueueFull: the line is at its limit and this owner has its share of it; `details` hold the place that
                there was none for, and the estimate for it.
            CapacityError: the reason given to `close`.
        """
        waiter = _Waiter(min(need, self.slots), owner, lane)
        await self._enter(waiter)
        started_ms = self._clock.now_ms()
        try:
            yield
        finally:
            self._hold_s = self._hold_s.updated((self._clock.now_ms() - started_ms) / 1000, alpha=_HOLD_ALPHA)
            self._release(waiter)

    async def _enter(self, waiter: _Waiter) -> None:
        if self._closed is not None:
            raise self._closed()
        if self.can_admit(waiter.need) and waiter.lane not in self._lanes:
            self._take(waiter)
            self._on_change()
            return
        if len(self._line) >= self.queue_limit:
            self._make_room(waiter.owner)
        self._line.append(waiter)
        self._on_change()
        try:
            await waiter.turn
        except asyncio.CancelledError:
            self._leave(waiter)
            raise

    def _leave(self, waiter: _Waiter) -> None:
        if waiter.turn.done() and not waiter.turn.cancelled() and waiter.turn.exception() is None:
            self._release(waiter)  # the turn came in the same moment as the cancellation
            return
        self._line.remove(waiter)
        self._advance()  # whoever stood behind a large request may fit now

    def _take(self, waiter: _Waiter) -> None:
        self._busy += waiter.need
        if waiter.lane is not None:
            self._lanes.add(waiter.lane)

    def _release(self, waiter: _Waiter) -> None:
        self._busy -= waiter.need
        self._lanes.discard(waiter.lane)
        self._advance()

    def _advance(self) -> None:
        while (waiter := self._next()) is not None:
            self._line.take(waiter)
            if not waiter.turn.done():
                self._take(waiter)
                waiter.turn.set_result(None)
        self._on_change()

    def _next(self) -> _Waiter | None:
        """Whose turn it is: the first whose lane is free, if there is room for it."""
        first = next((waiter for waiter in self._line if waiter.lane not in self._lanes), None)
        fits = first is not None and self._busy + min(first.need, self.limit) <= self.limit
        return first if fits else None

    def _make_room(self, owner: Hashable) -> None:
        """Turn away whoever has more than a fair share of the full line; the newcomer, if that is nobody."""
        displaced = self._line.to_make_room_for(owner)
        if displaced is None:
            raise self._full(owner)
        refusal = self._full(displaced.owner)
        self._line.remove(displaced)
        if not displaced.turn.done():
            displaced.turn.set_exception(refusal)

    def _full(self, owner: Hashable) -> QueueFull:
        position = self._line.position_of_next(owner)
        wait_s = self.wait_estimate_s(position)
        refusal = QueueFull(
            f"{self._busy} of {self.slots} slots are busy and {len(self._line)} requests wait, which is the limit; "
            f"place {position} in the line is likely served in about {wait_s} s.",
            retry_after_s=wait_s,
        )
        refusal.details = {"position": position, "wait_estimate_s": wait_s}
        return refusal
