"""Remembers how warm each device was, so that a chart has a past when it is opened."""

from __future__ import annotations

from collections import deque

from shared.fleet import FleetSnapshot

STEP_S = 2
KEPT_POINTS = 450
"""Fifteen minutes."""
LIMIT_DEVICES = 256
"""Devices beyond this many are shown without a past."""


class Traces:
    """Temperature by backend: pairs of Unix seconds and degrees Celsius, oldest first."""

    def __init__(self) -> None:
        self._of: dict[str, deque[tuple[float, float]]] = {}

    def sample(self, fleet: FleetSnapshot, unix_s: float) -> None:
        """Note the temperature of every backend that tells it, and forget those that are gone."""
        present = set()
        for backend in fleet.backends:
            if backend.temperature_c is None:
                continue
            trace = self._of.get(backend.backend_id)
            if trace is None:
                if len(self._of) >= LIMIT_DEVICES:
                    continue
                trace = self._of[backend.backend_id] = deque(maxlen=KEPT_POINTS)
            present.add(backend.backend_id)
            trace.append((round(unix_s, 1), round(backend.temperature_c, 1)))
        known = {backend.backend_id for backend in fleet.backends}
        for backend_id in self._of.keys() - present - known:
            del self._of[backend_id]

    def all(self) -> dict[str, list[tuple[float, float]]]:
        """Every trace."""
        return {backend_id: list(trace) for backend_id, trace in self._of.items()}
