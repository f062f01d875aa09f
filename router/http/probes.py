"""Says whether the router lives and takes work, and shows its metrics."""

from __future__ import annotations

import orjson
from aiohttp import web
from prometheus_client import CollectorRegistry

from router.dispatch.health import Health
from router.fleet.directory import FleetDirectory
from router.http.access import Doorkeeper
from shared.clock import Clock
from shared.fleet import BackendState, Breaker, Zone
from shared.http.lifecycle import Lifecycle
from shared.telemetry import CONTENT_TYPE, RouterMetrics, exposition


class Probes:
    """Liveness never depends on a backend; readiness only on whether this process takes new work."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle

    async def live(self, _: web.Request) -> web.Response:
        return _json({"status": "ok"}, 200)

    async def ready(self, _: web.Request) -> web.Response:
        if self._lifecycle.draining:
            return _json({"status": "draining", "reason": "shutting down"}, 503)
        return _json({"status": "ready"}, 200)


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
    ) -> None:
        self._doorkeeper = doorkeeper
        self._registry = registry
        self._metrics = metrics
        self._directory = directory
        self._health = health
        self._clock = clock

    async def handle(self, request: web.Request) -> web.Response:
        self._doorkeeper.admit(request, None)
        backends = self._directory.snapshot().backends
        for zone in Zone:
            for state in BackendState:
                count = sum(b.zone is zone and b.state is state for b in backends)
                self._metrics.backends.labels(zone, state).set(count)
        states = [ledger.breaker(self._clock.now_ms()) for ledger in self._health.ledgers]
        for breaker in Breaker:
            self._metrics.breaker.labels(breaker).set(states.count(breaker))
        self._metrics.state_store.set(self._directory.store_up)
        return web.Response(body=exposition(self._registry), headers={"Content-Type": CONTENT_TYPE})


def _json(value: dict[str, str], status: int) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(value), content_type="application/json")
