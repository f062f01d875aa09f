"""Builds the snapshot that decisions read: reports of edge agents, polled backends, and this router's experience."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal, Protocol
from urllib.parse import urlsplit

from router.dispatch.health import Health
from router.dispatch.ledger import Ledger
from router.fleet.changes import Changes
from router.fleet.foresight import foreseen_ratio
from router.fleet.poller import CapacityPoller, Polled, Standing
from router.fleet.roster import Roster
from router.fleet.watch import FleetWatch
from router.policy.question import View
from shared.clock import Clock
from shared.fleet import BackendSnapshot, BackendState, Breaker, FleetSnapshot, Heartbeat, Incumbent
from shared.state.port import Report

_OPEN = Breaker.OPEN
_PORTS = {"http": 80, "https": 443}


class Drained(Protocol):
    """Which backends are to get nothing new, and who wants to hear when that changes."""

    def __contains__(self, backend_id: object) -> bool: ...

    def listen(self, hear: Callable[[str], None]) -> None: ...


class FleetDirectory:
    """All known backends. One identity per address: the agent that reported from it last.

    A backend's snapshot is made again only when something about it changed: watch, poller and health tell, and what
    ends by time is noted when it begins. A request on a fleet that stands still pays a comparison.
    """

    def __init__(
        self,
        watch: FleetWatch,
        poller: CapacityPoller,
        health: Health,
        clock: Clock,
        *,
        drained: Drained | None = None,
    ) -> None:
        """`drained` holds the backends that are to get nothing new."""
        self._watch = watch
        self._poller = poller
        self._health = health
        self._clock = clock
        self._drained = drained
        self._polled = {polled.backend_id: polled for polled in poller.polled}
        self._roster = Roster()
        self._changes = Changes()
        self._incumbent: Incumbent | None = None
        self._reports: dict[str, Report] | None = None
        self._heard: dict[str, tuple[str, int]] = {}
        self._urls: dict[str, str] = {}
        self._claims: dict[str, dict[str, None]] = {}
        watch.listen(self._changes.note, self._changes.note_sign)
        for source in (poller, health, *(() if drained is None else (drained,))):
            source.listen(self._changes.note)

    @property
    def store_up(self) -> bool:
        """Whether the state store answered last."""
        return self._watch.up

    def snapshot(self) -> FleetSnapshot:
        """The fleet now."""
        now_ms = self._clock.now_ms()
        reports, noted, signs = self._watch.reports(), self._changes.take(now_ms), self._changes.take_signs()
        if reports is not self._reports:
            noted |= dict.fromkeys((*self._polled, *self._urls, *reports))
            self._reports = reports
        revived = self._revived(signs, noted, reports) if signs else {}
        if noted:
            self._refresh(noted.keys() | self._moved(noted, reports), reports, now_ms)
        if revived:
            self._roster.hear(revived)
        return FleetSnapshot(self._roster.backends, now_ms, self._incumbent, self._roster.places)

    def view(self, fleet: FleetSnapshot) -> View | None:
        """The backends of `fleet` in the shape that decisions read fastest; None for one that is not the last."""
        return self._roster.view() if fleet.backends is self._roster.backends else None

    def chosen(self, tier: Literal["edge", "cloud"]) -> None:
        """Note the tier that a free choice went to."""
        if self._incumbent is None or self._incumbent.tier != tier:
            self._incumbent = Incumbent(tier, self._clock.now_ms())

    def _revived(
        self, signs: set[str], noted: dict[str, None], reports: dict[str, Report]
    ) -> dict[str, BackendSnapshot]:
        """The snapshots of those that are alive and as they were: nothing but the time of their last report is new.
        Whatever might be otherwise about a backend is added to `noted` instead."""
        revived: dict[str, BackendSnapshot] = {}
        for backend_id in signs:
            known, report = self._roster.get(backend_id), reports.get(backend_id)
            known_at = self._urls.get(backend_id, "")
            claims = () if report is None or backend_id in noted else self._claims.get(known_at, ())
            # With an open breaker a sign of life is news; of several at one address the last to report has it.
            if known is None or report is None or len(claims) != 1 or known.breaker is _OPEN:
                noted[backend_id] = None
            else:
                revived[backend_id] = known.heard_at(report.received_ms)
                self._heard[backend_id] = (report.instance, report.sequence)
        return revived

    def _refresh(self, noted: Iterable[str], reports: dict[str, Report], now_ms: int) -> None:
        """Make the snapshots of these backends again; those that come out the same stay the same object."""
        changed: dict[str, BackendSnapshot | None] = {}
        for backend_id in noted:
            known, made = self._roster.get(backend_id), self._made(backend_id, reports, now_ms)
            if made != known:
                changed[backend_id] = made
        if changed:
            self._roster.put(changed)
        gone = [backend_id for backend_id, made in changed.items() if made is None]
        if gone:
            for backend_id in gone:
                self._heard.pop(backend_id, None)
            self._health.ledgers.keep_only(self._roster.places)

    def _made(self, backend_id: str, reports: dict[str, Report], now_ms: int) -> BackendSnapshot | None:
        """The snapshot of a backend; None where there is none."""
        polled, report = self._polled.get(backend_id), reports.get(backend_id)
        if polled is not None:
            ledger = self._health.ledgers.of(backend_id)
            breaker, cooling = self._experience(backend_id, ledger, now_ms)
            return self._in_service(_of_standing(polled, self._poller.standing(backend_id), ledger, breaker, cooling))
        if report is None or self._owner(place_of(report.content.url), reports) != backend_id:
            return None
        beat = report.content
        ledger = self._health.ledgers.of(backend_id, beat.instance)
        known = (beat.instance, report.sequence)
        if self._heard.get(backend_id) != known:
            self._heard[backend_id] = known
            ledger.sign_of_life(now_ms)
        breaker, cooling = self._experience(backend_id, ledger, now_ms)
        return self._in_service(_of_report(beat, report.received_ms, ledger, breaker, cooling))

    def _in_service(self, backend: BackendSnapshot) -> BackendSnapshot:
        """As it says, unless an operator took it out of service; one that failed has failed."""
        if self._drained is None or backend.backend_id not in self._drained or backend.state is BackendState.FAILED:
            return backend
        return backend._replace(state=BackendState.DRAINING)

    def _experience(self, backend_id: str, ledger: Ledger, now_ms: int) -> tuple[Breaker, int | None]:
        """State of the breaker, and until when a backend rests; both end by time."""
        breaker, cooling = ledger.breaker(now_ms), self._health.rests_until_ms(backend_id, now_ms)
        dues = [due_ms for due_ms in (cooling, ledger.changes_at_ms(now_ms)) if due_ms is not None]
        if dues:
            self._changes.note_at(backend_id, min(dues))
        return breaker, cooling

    def _moved(self, noted: Iterable[str], reports: dict[str, Report]) -> set[str]:
        """Bring up to date who reports from which address; others whose address these share or shared."""
        others: set[str] = set()
        for backend_id in noted:
            report, was = reports.get(backend_id), self._urls.get(backend_id)
            url = None if report is None else place_of(report.content.url)
            if url != was:
                if was is not None:
                    self._leave(backend_id, was)
                    others.update(self._claims.get(was, ()))
                if url is not None:
                    self._urls[backend_id] = url
                    self._claims.setdefault(url, {})[backend_id] = None
            claims = self._claims.get(url, {}) if url is not None else {}
            if len(claims) > 1:
                others.update(claims)
        return others

    def _leave(self, backend_id: str, url: str) -> None:
        del self._urls[backend_id]
        claims = self._claims[url]
        del claims[backend_id]
        if not claims:
            del self._claims[url]

    def _owner(self, url: str, reports: dict[str, Report]) -> str:
        """Who stands at an address now: one that was given to another device is that device alone."""
        return max(reversed(self._claims[url]), key=lambda backend_id: reports[backend_id].received_ms)


@lru_cache(maxsize=65_536)
def place_of(url: str) -> str:
    """The address that `url` leads to: two ways of writing it are one. A report's URL has been checked."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # a port or a host that is none: nobody is reached there
        return url
    return f"{parts.scheme}://{parts.hostname}:{port}{parts.path.rstrip('/')}"


def _of_standing(
    polled: Polled, standing: Standing, ledger: Ledger, breaker: Breaker, cooling_until_ms: int | None
) -> BackendSnapshot:
    return BackendSnapshot(
        backend_id=polled.backend_id,
        zone=polled.zone,
        url=polled.url,
        state=standing.state,
        models=standing.models,
        received_ms=None,
        slots_total=standing.slots_total,
        slots_busy=standing.slots_busy,
        queued=standing.queued,
        decode_tokens_per_s=ledger.decode_tokens_per_s,
        ttft_ms=ledger.ttft_ms,
        ttft_ms_by_prompt=ledger.ttft_ms_by_prompt,
        answer_tokens=ledger.answer_tokens,
        breaker=breaker,
        cooling_until_ms=cooling_until_ms,
        in_flight=ledger.in_flight,
    )


def _of_report(
    beat: Heartbeat, received_ms: int, ledger: Ledger, breaker: Breaker, cooling_until_ms: int | None
) -> BackendSnapshot:
    return BackendSnapshot(
        backend_id=beat.backend_id,
        zone=beat.zone,
        url=beat.url,
        state=beat.state,
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
        answer_tokens=ledger.answer_tokens,
        slot_wait_s=beat.slot_wait_s,
        turn_s=beat.turn_s,
        output_cap_tokens=beat.output_cap_tokens,
        breaker=breaker,
        cooling_until_ms=cooling_until_ms,
        in_flight=ledger.in_flight,
    )
