"""Follows the state store and outlives it: the last known fleet is used for a while when the store is gone.

Requests never wait for the store: they read what the last refresh left in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from shared import logs
from shared.clock import Clock
from shared.errors import StateUnavailable
from shared.fleet import Heartbeat
from shared.state.ordering import Order, order_of
from shared.state.port import Report, Signed, StateStore


class FleetWatch:
    """Reports of all edge agents, at most one refresh old.

    While the store is gone, a report's age stands still, up to `last_known_ms` after the last answer: the fleet is
    used as it was last known, and then it is stale. Agents that report to this very router stay fresh throughout.
    """

    def __init__(
        self,
        store: StateStore,
        clock: Clock,
        *,
        last_known_ms: int,
        trusted: Callable[[Iterable[Report]], Iterable[Report]] = tuple,
    ) -> None:
        """`trusted` leaves out of what the store holds the reports that are not their device's."""
        self._store = store
        self._clock = clock
        self._last_known_ms = last_known_ms
        self._trusted = trusted
        self._log = logs.get("fleet")
        self._reports: dict[str, Report] = {}
        self._local: dict[str, Report] = {}
        self._carried: dict[str, Report] = {}
        self._on_change: Callable[[str], None] = lambda backend_id: None
        self._answered_ms = clock.now_ms()
        self._up = True

    @property
    def up(self) -> bool:
        """Whether the store answered last."""
        return self._up

    def listen(self, on_change: Callable[[str], None]) -> None:
        """Tell `on_change` the id of each agent of which there is a newer report, or none any more."""
        self._on_change = on_change

    async def publish(self, heartbeat: Heartbeat, signed: Signed | None = None) -> bool:
        """Take a heartbeat that was checked; False when it is older than what is known. A store that is gone does not
        matter."""
        known = self._reports.get(heartbeat.backend_id)
        order = order_of(heartbeat, known.heartbeat if known else None, ())
        if order is Order.OLDER:
            return False
        try:
            if not await self._store.publish(heartbeat, signed):
                return False
            self._answered()
        except StateUnavailable as error:
            self._failed(error)
        if order is Order.NEWER:
            report = Report(heartbeat, self._clock.now_ms(), signed)
            for reports in (self._reports, self._local, self._carried):
                reports[heartbeat.backend_id] = report
            self._on_change(heartbeat.backend_id)
        return True

    async def forget(self, backend_id: str) -> None:
        """Drop what `backend_id` reported; where the store is gone, its report ends there by its age."""
        for reports in (self._reports, self._local, self._carried):
            reports.pop(backend_id, None)
        self._on_change(backend_id)
        try:
            await self._store.forget(backend_id)
        except StateUnavailable as error:
            self._failed(error)

    async def refresh(self) -> None:
        """Read the store once."""
        try:
            reports = await self._store.reports()
        except StateUnavailable as error:
            self._failed(error)
            if self._reports is not self.reports():
                self._carry()
            return
        self._answered()
        fresh = {report.heartbeat.backend_id: self._latest(report) for report in self._trusted(reports)}
        for backend_id, own in self._local.items():
            stored = fresh.get(backend_id)
            if stored is not None and _is_same_or_newer(own, stored):
                fresh[backend_id] = own
        self._local = {b: r for b, r in self._local.items() if b in fresh}
        self._take(fresh)

    def _latest(self, report: Report) -> Report:
        """The report, or the known one where that is later: whoever can write to the store can repeat an old one."""
        known = self._reports.get(report.heartbeat.backend_id)
        is_older = known is not None and order_of(report.heartbeat, known.heartbeat, ()) is Order.OLDER
        return known if known is not None and is_older else report

    async def run(self, interval_s: float) -> None:
        """Refresh for ever."""
        while True:
            await self.refresh()
            await self._clock.sleep(interval_s)

    def reports(self) -> dict[str, Report]:
        """The reports to judge now, by backend id. While it is the same object, what changes in it is told."""
        if self._up or self._clock.now_ms() - self._answered_ms > self._last_known_ms:
            return self._reports
        return self._carried

    def _take(self, fresh: dict[str, Report]) -> None:
        """Put `fresh` in the place of the reports that are known, and tell what differs."""
        known = self._reports
        for backend_id in known.keys() - fresh.keys():
            del known[backend_id]
            self._on_change(backend_id)
        for backend_id, report in fresh.items():
            if known.get(backend_id) is not report:
                known[backend_id] = report
                self._on_change(backend_id)

    def _carry(self) -> None:
        """Let the ages of reports stand still."""
        now_ms = self._clock.now_ms()
        gone_ms = now_ms - self._answered_ms
        self._carried = {
            backend_id: replace(report, received_ms=min(now_ms, report.received_ms + gone_ms))
            for backend_id, report in self._reports.items()
        }

    def _answered(self) -> None:
        now_ms = self._clock.now_ms()
        outage_ms, self._answered_ms = now_ms - self._answered_ms, now_ms
        if not self._up:
            if outage_ms <= self._last_known_ms:
                # Agents could not report through the store either: the outage is not held against them.
                for backend_id, report in self._reports.items():
                    carried = replace(report, received_ms=min(now_ms, report.received_ms + outage_ms))
                    self._local[backend_id] = carried
            self._up = True
            self._log.info("state_store_up")

    def _failed(self, error: StateUnavailable) -> None:
        if self._up:
            self._up = False
            self._carry()
            self._log.warning("state_store_down", error=error.message, last_known_s=self._last_known_ms / 1000)


def _is_same_or_newer(own: Report, stored: Report) -> bool:
    """Whether what came to this router is at least as new as what the store has of the same process."""
    return own.heartbeat.instance == stored.heartbeat.instance and own.heartbeat.sequence >= stored.heartbeat.sequence
