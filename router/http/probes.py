"""Says whether the router lives and takes work, and shows its metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import orjson
from aiohttp import web
from prometheus_client import CollectorRegistry

from router.audit.log import AuditLog
from router.dispatch.health import Health
from router.fleet.directory import FleetDirectory
from router.fleet.staleness import StaleWatch
from router.http.access import Doorkeeper
from shared.clock import Clock
from shared.fleet import BackendState, Breaker, Zone
from shared.gathering import Snapshot, exposition_of, snapshot
from shared.http.lifecycle import Lifecycle
from shared.telemetry import CONTENT_TYPE, RouterMetrics, exposition


class Probes:
    """Liveness never depends on a backend; readiness only on whether this process takes new work.

    A router whose audit storage fails stays ready: it goes on serving public requests and refuses the others by
    itself, and taking it out would refuse those too. The answer says that it is so.
    """

    def __init__(self, lifecycle: Lifecycle, audit: AuditLog | None = None) -> None:
        self._lifecycle = lifecycle
        self._audit = audit

    async def live(self, _: web.Request) -> web.Response:
        return _json({"status": "ok"}, 200)

    async def ready(self, _: web.Request) -> web.Response:
        if self._lifecycle.draining:
            return _json({"status": "draining", "reason": "shutting down"}, 503)
        failing = self._audit is not None and self._audit.failing
        return _json({"status": "ready", **({"audit": "failing"} if failing else {})}, 200)


class Gatherer(Protocol):
    """Where the metrics of the processes that serve together meet."""

    snapshot: Callable[[], Snapshot]

    async def gathered(self, own: Snapshot) -> list[Snapshot]:
        """Those of the others; they learn of `own`."""


class Metrics:
    """Handler of GET /metrics; the gauges of the fleet are read at that moment."""

    def __init__(
        self,
        doorkeeper: Doorkeeper,
        registry: CollectorRegistry,
        metrics: RouterMetrics,
        directory: FleetDirectory,
        health: Health,
        clock: Clock,
        stale: StaleWatch,
        member: Gatherer | None = None,
    ) -> None:
        """`member` knows the metrics of other workers, where there are any."""
        self._member = member
        self._stale = stale
        if member is not None:
            member.snapshot = self._snapshot
        self._doorkeeper = doorkeeper
        self._registry = registry
        self._metrics = metrics
        self._directory = directory
        self._health = health
        self._clock = clock

    async def handle(self, request: web.Request) -> web.Response:
        self._doorkeeper.admit(request, None)
        if self._member is None:
            self._read_gauges()
            body = exposition(self._registry)
        else:
            own = self._snapshot()
            body = exposition_of(own, await self._member.gathered(own))
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    def _snapshot(self) -> Snapshot:
        self._read_gauges()
        return snapshot(self._registry)

    def _read_gauges(self) -> None:
        backends = self._directory.snapshot().backends
        for zone in Zone:
            for state in BackendState:
                count = sum(b.zone is zone and b.state is state for b in backends)
                self._metrics.backends.labels(zone, state).set(count)
        states = [ledger.breaker(self._clock.now_ms()) for ledger in self._health.ledgers]
        for breaker in Breaker:
            self._metrics.breaker.labels(breaker).set(states.count(breaker))
        self._metrics.stale.set(self._stale.count())
        self._metrics.state_store.set(self._directory.store_up)


def _json(value: dict[str, str], status: int) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(value), content_type="application/json")
