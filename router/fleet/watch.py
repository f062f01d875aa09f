"""Follows the state store and outlives it: the last known fleet is used for a while when the store is gone.

Requests never wait for the store: they read what the last refresh left in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shared import logs
from shared.clock import Clock
from shared.errors import StateRefused, StateUnavailable
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
        self._on_sign: Callable[[str], None] = lambda backend_id: None
        self._answered_ms = clock.now_ms()
        self._up = True
        self._takes = True

    @property
    def up(self) -> bool:
        """Whether the store answered last."""
        return self._up

    def listen(self, on_change: Callable[[str], None], on_sign: Callable[[str], None] | None = None) -> None:
        """Tell `on_change` the id of each agent of which there is a newer report, or none any more; `on_sign` instead,
        if given, where the report only says again what the one before it said."""
        self._on_change = on_change
        self._on_sign = on_sign or on_change

    async def publish(self, heartbeat: Heartbeat, signed: Signed | None = None) -> bool:
        """Take a heartbeat that was checked; False when it is older than what is known. A store that is gone does not
        matter."""
        known = self._reports.get(heartbeat.backend_id)
        order = order_of(heartbeat, known, ())
        if order is Order.OLDER:
            return False
        try:
            if not await self._store.publish(heartbeat, signed):
                return False
            self._answered()
            self._note_taken(None)
        except StateRefused as error:  # it can still be read
            self._note_taken(error)
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
        except StateRefused as error:  # a replica, say: it can still be read
            self._note_taken(error)
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
        # Most of thousands of reports are those of the last time: they are told apart by identity, without a call.
        fresh, known = {}, self._reports
        for report in self._trusted(reports):
            backend_id = report.content.backend_id
            before = known.get(backend_id)
            fresh[backend_id] = report if before is None or before is report else _latest(report, before)
        for backend_id, own in self._local.items():
            stored = fresh.get(backend_id)
            if stored is not None and _is_same_or_newer(own, stored):
                fresh[backend_id] = own
        self._local = {b: r for b, r in self._local.items() if b in fresh}
        self._take(fresh)

    async def run(self, interval_s: float) -> None:
        """Refresh for ever."""
        while True:
            await self.refresh()
            await self._clock.sleep(interval_s)

    def heard_ms(self, backend_id: str) -> int | None:
        """When an agent reported last; None: it does not report."""
        report = self.reports().get(backend_id)
        return None if report is None else report.received_ms

    def reports(self) -> dict[str, Report]:
        """The reports to judge now, by backend id. While it is the same object, what changes in it is told."""
        if self._up or self._clock.now_ms() - self._answered_ms > self._last_known_ms:
            return self._reports
        return self._carried

    def _take(self, fresh: dict[str, Report]) -> None:
        """Put `fresh` in the place of the reports that are known, and tell what differs."""
        known = self._reports
        for backend_id in () if known.keys() == fresh.keys() else known.keys() - fresh.keys():
            del known[backend_id]
            self._on_change(backend_id)
        for backend_id, report in fresh.items():
            before = known.get(backend_id)
            if before is not report:
                known[backend_id] = report
                tell = self._on_sign if before is not None and before.content is report.content else self._on_change
                tell(backend_id)

    def _carry(self) -> None:
        """Let the ages of reports stand still."""
        now_ms = self._clock.now_ms()
        gone_ms = now_ms - self._answered_ms
        self._carried = {
            backend_id: report.received(min(now_ms, report.received_ms + gone_ms))
            for backend_id, report in self._reports.items()
        }

    def _answered(self) -> None:
        now_ms = self._clock.now_ms()
        outage_ms, self._answered_ms = now_ms - self._answered_ms, now_ms
        if not self._up:
            if outage_ms <= self._last_known_ms:
                # Agents could not report through the store either: the outage is not held against them.
                for backend_id, report in self._reports.items():
                    self._local[backend_id] = report.received(min(now_ms, report.received_ms + outage_ms))
            self._up = True
            self._log.info("state_store_up")

    def _note_taken(self, error: StateRefused | None) -> None:
        """Say once that the store takes no reports, and once that it does again: other routers hear of the agents that
        report here no more meanwhile."""
        if self._takes is (error is not None):
            self._takes = error is None
            if error is not None:
                self._log.warning("state_store_refuses", error=error.message)
            else:
                self._log.info("state_store_takes_again")

    def _failed(self, error: StateUnavailable) -> None:
        if self._up:
            self._up = False
            self._carry()
            self._log.warning("state_store_down", error=error.message, last_known_s=self._last_known_ms / 1000)


def _latest(report: Report, known: Report) -> Report:
    """The report, or the known one where that is later: whoever can write to the store can repeat an old one."""
    return known if order_of(report, known, ()) is Order.OLDER else report


def _is_same_or_newer(own: Report, stored: Report) -> bool:
    """Whether what came to this router is at least as new as what the store has of the same process."""
    return own.instance == stored.instance and own.sequence >= stored.sequence
