"""Tells whether any replica of a model runs, from Serve's status, read at most once a second."""

from __future__ import annotations

import asyncio

from ray import serve

from cloud.options import deployment_name
from cloud.render import APP_NAME
from shared.clock import Clock, SystemClock

_FRESH_MS = 1_000


class Awake:
    """Serve's view of the models' replicas. It asks the controller alone, so nothing is woken by it."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = asyncio.Lock()
        self._running: dict[str, int] = {}
        self._read_ms: int | None = None

    async def has_replica(self, model_id: str) -> bool:
        """Whether a replica of `model_id` takes requests now."""
        async with self._lock:
            now_ms = self._clock.now_ms()
            if self._read_ms is None or now_ms - self._read_ms >= _FRESH_MS:
                self._running = await asyncio.to_thread(_running)
                self._read_ms = self._clock.now_ms()
            return self._running.get(deployment_name(model_id), 0) > 0


def _running() -> dict[str, int]:
    app = serve.status().applications.get(APP_NAME)
    return {
        name: sum(n for state, n in found.replica_states.items() if str(getattr(state, "value", state)) == "RUNNING")
        for name, found in (app.deployments if app else {}).items()
    }
