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
from edge.service.wait import ANSWER, HORIZON_S, Paces, Part, Work, part_of, room_s, turn_s
from shared.clock import Clock
from shared.errors import CapacityError, QueueFull

_LONGEST_RETRY_S = 60
"""OpenAI's clients follow a longer `Retry-After` not at all, and come back within seconds."""


@dataclass(slots=True, eq=False)
class _Waiter:
    need: int
    owner: Hashable = None
    lane: Hashable | None = None
    work: Work = ANSWER
    turn: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def stays(self) -> bool:
        """Whether nothing turns it away."""
        return self.work.is_promised


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
        self._turns = 0
        self._line: FairLine[_Waiter] = FairLine()
        self._lanes: set[Hashable] = set()
        self._since_ms: dict[_Waiter, int] = {}
        """Who runs, and since when."""
        self._paces = Paces()

    @property
    def busy(self) -> int:
        """Slots taken now."""
        return self._busy

    @property
    def turns(self) -> int:
        """How often slots were taken so far: who finds it unchanged had no company since."""
        return self._turns

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
        """Admit nothing new: those in the line and those to come get `reason()`, but for later turns of what runs."""
        self._closed = reason
        for waiter in self._line.dismiss():
            if not waiter.turn.done():
                waiter.turn.set_exception(reason())
        self._advance()  # whoever stays may have stood behind one of them

    def open(self) -> None:
        """Admit again."""
        self._closed = None

    def can_admit(self, need: int) -> bool:
        """Whether a request for `need` slots would run at once."""
        return self._closed is None and self._has_room(need)

    def wait_s(self, owner: Hashable = None, *, need: int = 1) -> float:
        """Seconds until one more request of `owner` would have `need` slots, and a place in the line before that."""
        slots = max(1, self.limit)
        running = [self._part(waiter, since_ms) for waiter, since_ms in self._since_ms.items()]
        waiting = [self._part(waiter) for waiter in self._line]
        newcomer = Part(owner, need, 0.0)
        leaving = len(self._line) - self.queue_limit + 1
        turn = turn_s(running, waiting, newcomer, slots=slots)
        return max(turn, room_s([*running, *waiting], leaving, slots=slots))

    def retry_after_s(self, owner: Hashable = None) -> int:
        """The same in whole seconds, for an answer that tells a client when to come back."""
        return min(_LONGEST_RETRY_S, _whole(self.wait_s(owner)))

    @property
    def told_wait_s(self) -> float | None:
        """The same for routers, to one digit: what changes little shall not make every report a new one. None: a slot
        is free, or nothing is admitted."""
        if self._closed is not None or self.can_admit(1):
            return None
        return float(f"{self.wait_s():.0e}")

    @property
    def told_turn_s(self) -> float | None:
        """How long answers lately held their slots, for routers, to two digits; None: none was seen."""
        seen_s = self._paces.seen_s(ANSWER.kind)
        return None if seen_s is None else float(f"{min(seen_s, HORIZON_S):.1e}")

    @contextlib.asynccontextmanager
    async def slot(
        self, need: int = 1, *, owner: Hashable = None, lane: Hashable | None = None, work: Work = ANSWER
    ) -> AsyncIterator[None]:
        """Hold `need` slots for as long as the block runs; leaving the line or the block gives everything back.

        `owner` is whose request it is: owners take turns. Of those with the same `lane`, one runs at a time. `work`
        is what others can expect of it; what is promised is not turned away.

        Raises:
            QueueFull: the line is at its limit and this owner has its share of it; `details` hold the place that
                there was none for, and the estimate for it.
            CapacityError: the reason given to `close`.
        """
        waiter = _Waiter(min(need, self.slots), owner, lane, work)
        await self._enter(waiter)
        try:
            yield
        except BaseException:
            self._paces.record_cut(work, self._held_s(waiter))
            raise
        else:
            self._paces.record(work, self._held_s(waiter))
        finally:
            self._release(waiter)

    async def _enter(self, waiter: _Waiter) -> None:
        if self._closed is not None and not waiter.stays:
            raise self._closed()
        if self._has_room(waiter.need) and waiter.lane not in self._lanes:
            self._take(waiter)
            self._on_change()
            return
        if len(self._line) >= self.queue_limit and not waiter.stays:
            self._make_room(waiter.owner)
        self._line.append(waiter)
        self._on_change()
        try:
            await waiter.turn
        except asyncio.CancelledError:
            self._leave(waiter)
            raise

    def _has_room(self, need: int) -> bool:
        return not len(self._line) and self._busy + min(need, self.limit) <= self.limit

    def _leave(self, waiter: _Waiter) -> None:
        if waiter.turn.done() and not waiter.turn.cancelled() and waiter.turn.exception() is None:
            self._release(waiter)  # the turn came in the same moment as the cancellation
            return
        self._line.remove(waiter)
        self._advance()  # whoever stood behind a large request may fit now

    def _take(self, waiter: _Waiter) -> None:
        self._busy += waiter.need
        self._turns += 1
        self._since_ms[waiter] = self._clock.now_ms()
        if waiter.lane is not None:
            self._lanes.add(waiter.lane)

    def _release(self, waiter: _Waiter) -> None:
        self._busy -= waiter.need
        del self._since_ms[waiter]
        self._lanes.discard(waiter.lane)
        self._advance()

    def _held_s(self, waiter: _Waiter) -> float:
        return (self._clock.now_ms() - self._since_ms[waiter]) / 1000

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
        position, wait_s = self._line.position_of_next(owner), _whole(self.wait_s(owner))
        refusal = QueueFull(
            f"{self._busy} of {self.slots} slots are busy and {len(self._line)} requests wait, which is the limit; "
            f"place {position} in the line is likely served in about {wait_s} s.",
            retry_after_s=min(_LONGEST_RETRY_S, wait_s),
        )
        refusal.details = {"position": position, "wait_estimate_s": wait_s}
        return refusal

    def _part(self, waiter: _Waiter, since_ms: int | None = None) -> Part:
        """How the prediction sees a request that waits, or has run since then."""
        lasted_s = 0.0 if since_ms is None else (self._clock.now_ms() - since_ms) / 1000
        return part_of(waiter.work, self._paces, owner=waiter.owner, need=waiter.need, lasted_s=lasted_s)


def _whole(seconds: float) -> int:
    """As clients are told it: at least a second."""
    return max(1, math.ceil(seconds))
