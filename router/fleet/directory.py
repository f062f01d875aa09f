"""Builds the snapshot that decisions read: reports of edge agents, polled backends, and this router's experience."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Literal

from router.dispatch.health import Health
from router.dispatch.ledger import Ledger
from router.fleet.foresight import foreseen_ratio
from router.fleet.poller import CapacityPoller, Polled, Standing
from router.fleet.watch import FleetWatch
from router.policy.question import View
from shared.clock import Clock
from shared.fleet import BackendSnapshot, BackendState, Breaker, FleetSnapshot, Heartbeat, Incumbent
from shared.state.port import Report

if TYPE_CHECKING:
    from router.policy.columns import Columns

BULK_FROM = 128
"""Backends from which on a decision over columns takes less time than one over the list."""


class _Entry:
    """A backend's last snapshot and what it was made of; made again only when one of those changed."""

    __slots__ = ("breaker", "cooling", "drained", "snapshot", "source", "version")

    def __init__(self) -> None:
        self.source: object = None
        self.version = -1
        self.breaker = Breaker.CLOSED
        self.cooling: int | None = None
        self.drained = False
        self.snapshot: BackendSnapshot | None = None


class FleetDirectory:
    """All known backends. One identity per address: the agent that reported from it last."""

    def __init__(
        self,
        watch: FleetWatch,
        poller: CapacityPoller,
        health: Health,
        clock: Clock,
        *,
        drained: Container[str] = frozenset(),
    ) -> None:
        """`drained` holds the backends that are to get nothing new."""
        self._watch = watch
        self._poller = poller
        self._health = health
        self._clock = clock
        self._drained = drained
        self._entries: dict[str, _Entry] = {}
        self._incumbent: Incumbent | None = None
        self._reported: dict[str, tuple[str, int]] = {}
        self._columns: Columns | None = None

    @property
    def store_up(self) -> bool:
        """Whether the state store answered last."""
        return self._watch.up

    def snapshot(self) -> FleetSnapshot:
        """The fleet now."""
        now_ms = self._clock.now_ms()
        backends = [self._polled(each, now_ms) for each in self._poller.polled]
        fixed = {backend.backend_id for backend in backends}
        reports = self._watch.reports()
        owners = _owners(reports)
        for backend_id, report in reports.items():
            if backend_id not in fixed and owners[report.heartbeat.url] == backend_id:
                backends.append(self._reporting(report, now_ms))
        if len(self._entries) > len(backends):
            self._forget({backend.backend_id for backend in backends})
        return FleetSnapshot(tuple(backends), now_ms, self._incumbent)

    def view(self, fleet: FleetSnapshot) -> View | None:
        """The backends of `fleet` as columns, where they are many; made from the last ones as far as they are alike."""
        if len(fleet.backends) < BULK_FROM:
            self._columns = None
            return None
        # A router in front of a few backends never loads numpy.
        from router.policy.bulk import Bulk  # noqa: PLC0415
        from router.policy.columns import columns_of  # noqa: PLC0415

        last = self._columns
        self._columns = columns_of(fleet.backends) if last is None else last.updated(fleet.backends)
        return Bulk(self._columns)

    def chosen(self, tier: Literal["edge", "cloud"]) -> None:
        """Note the tier that a free choice went to."""
        if self._incumbent is None or self._incumbent.tier != tier:
            self._incumbent = Incumbent(tier, self._clock.now_ms())

    def _polled(self, polled: Polled, now_ms: int) -> BackendSnapshot:
        standing = self._poller.standing(polled.backend_id)
        ledger = self._health.ledgers.of(polled.backend_id)
        entry = self._entry(polled.backend_id)
        if self._is_current(entry, standing, polled.backend_id, ledger, now_ms) and entry.snapshot is not None:
            return entry.snapshot
        entry.snapshot = _of_standing(polled, standing, ledger, entry)
        return entry.snapshot

    def _reporting(self, report: Report, now_ms: int) -> BackendSnapshot:
        beat = report.heartbeat
        ledger = self._health.ledgers.of(beat.backend_id, beat.instance)
        known = (beat.instance, beat.sequence)
        if self._reported.get(beat.backend_id) != known:
            self._reported[beat.backend_id] = known
            ledger.sign_of_life(now_ms)
        entry = self._entry(beat.backend_id)
        if self._is_current(entry, report, beat.backend_id, ledger, now_ms) and entry.snapshot is not None:
            return entry.snapshot
        entry.snapshot = _of_report(beat, report.received_ms, ledger, entry)
        return entry.snapshot

    def _entry(self, backend_id: str) -> _Entry:
        entry = self._entries.get(backend_id)
        if entry is None:
            entry = self._entries[backend_id] = _Entry()
        return entry

    def _is_current(self, entry: _Entry, source: object, backend_id: str, ledger: Ledger, now_ms: int) -> bool:
        """Whether the entry's snapshot still holds; else the entry is brought up to date for a new one."""
        breaker = ledger.breaker(now_ms)
        cooling = self._health.rests_until_ms(backend_id, now_ms)
        drained = backend_id in self._drained
        if (
            entry.source is source
            and entry.version == ledger.version
            and entry.breaker is breaker
            and entry.cooling == cooling
            and entry.drained is drained
        ):
            return True
        entry.source, entry.version, entry.breaker, entry.cooling = source, ledger.version, breaker, cooling
        entry.drained = drained
        return False

    def _forget(self, present: set[str]) -> None:
        for backend_id in self._entries.keys() - present:
            del self._entries[backend_id]
            self._reported.pop(backend_id, None)
        self._health.ledgers.keep_only(present)


def _owners(reports: dict[str, Report]) -> dict[str, str]:
    """Who stands at each address now: an address that was given to another device is that device alone."""
    owners: dict[str, str] = {}
    for backend_id, report in reports.items():
        url = report.heartbeat.url
        other = owners.get(url)
        if other is None or reports[other].received_ms <= report.received_ms:
            owners[url] = backend_id
    return owners


def _state(said: BackendState, entry: _Entry) -> BackendState:
    """What the backend says, unless an operator took it out of service; one that failed has failed."""
    return BackendState.DRAINING if entry.drained and said is not BackendState.FAILED else said


def _of_standing(polled: Polled, standing: Standing, ledger: Ledger, entry: _Entry) -> BackendSnapshot:
    return BackendSnapshot(
        backend_id=polled.backend_id,
        zone=polled.zone,
        url=polled.url,
        state=_state(standing.state, entry),
        models=standing.models,
        received_ms=None,
        slots_total=standing.slots_total,
        slots_busy=standing.slots_busy,
        queued=standing.queued,
        decode_tokens_per_s=ledger.decode_tokens_per_s,
        ttft_ms=ledger.ttft_ms,
        ttft_ms_by_prompt=ledger.ttft_ms_by_prompt,
        breaker=entry.breaker,
        cooling_until_ms=entry.cooling,
        in_flight=ledger.in_flight,
    )


def _of_report(beat: Heartbeat, received_ms: int, ledger: Ledger, entry: _Entry) -> BackendSnapshot:
    return BackendSnapshot(
        backend_id=beat.backend_id,
        zone=beat.zone,
        url=beat.url,
        state=_state(beat.state, entry),
        models=beat.models,
        received_ms=received_ms,
        level=beat.level,
        derate_ratio=foreseen_ratio(beat),
        temperature_c=beat.temperature_c,
        speculation=beat.speculation,
        seconds_to_throttle=beat.seconds_to_throttle,
        slots_total=beat.slots_total,
        slots_busy=beat.slots_busy,
        queued=beat.queued,
        queue_limit=beat.queue_limit,
        prefill_tokens_per_s=beat.prefill_tokens_per_s,
        decode_tokens_per_s=beat.decode_tokens_per_s,
        ttft_ms=ledger.ttft_ms,
        ttft_ms_by_prompt=ledger.ttft_ms_by_prompt,
        output_cap_tokens=beat.output_cap_tokens,
        breaker=entry.breaker,
        cooling_until_ms=entry.cooling,
        in_flight=ledger.in_flight,
    )
