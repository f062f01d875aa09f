"""Fleet state in this process: for one router, and the behaviour that every other store must match."""

from __future__ import annotations

from dataclasses import dataclass

from shared.clock import Clock
from shared.fleet import Heartbeat
from shared.state.ordering import MAX_RETIRED, Order, order_of
from shared.state.port import Report, Signed


@dataclass(slots=True)
class _Kept:
    report: Report
    retired: tuple[str, ...]


class MemoryStateStore:
    """Keeps the last report of each backend for `ttl_s` after it came."""

    def __init__(self, clock: Clock, *, ttl_s: float) -> None:
        self._clock = clock
        self._ttl_ms = int(ttl_s * 1000)
        self._kept: dict[str, _Kept] = {}

    async def publish(self, heartbeat: Heartbeat, signed: Signed | None = None) -> bool:
        self._expire()
        kept = self._kept.get(heartbeat.backend_id)
        retired = kept.retired if kept else ()
        order = order_of(heartbeat, kept.report if kept else None, retired)
        if order is Order.NEWER:
            if kept and kept.report.instance != heartbeat.instance:
                retired = (*retired, kept.report.instance)[-MAX_RETIRED:]
            self._kept[heartbeat.backend_id] = _Kept(Report(heartbeat, self._clock.now_ms(), signed), retired)
        return order is not Order.OLDER

    async def reports(self) -> tuple[Report, ...]:
        self._expire()
        return tuple(self._kept[backend_id].report for backend_id in sorted(self._kept))

    async def forget(self, backend_id: str) -> None:
        self._kept.pop(backend_id, None)

    async def close(self) -> None:
        self._kept.clear()

    def _expire(self) -> None:
        oldest_ms = self._clock.now_ms() - self._ttl_ms
        for backend_id in [b for b, kept in self._kept.items() if kept.report.received_ms < oldest_ms]:
            del self._kept[backend_id]
