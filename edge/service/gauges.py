"""Keeps the gauges of the agent in step with admission, heat and engine."""

from __future__ import annotations

import math
from functools import partial

from edge.runtime.port import EngineState, EngineStatus
from edge.scheduling.speculation import Reason, SpeculationMode
from edge.service.admission import Admission
from edge.service.memory_watch import MemoryWatch
from edge.service.thermal.panel import SensorState
from edge.service.thermal.watch import ThermalWatch
from shared.fleet import ThermalLevel
from shared.telemetry import EdgeMetrics


class Gauges:
    """One method for each part that changes."""

    def __init__(self, metrics: EdgeMetrics, admission: Admission, thermal: ThermalWatch, memory: MemoryWatch) -> None:
        self._metrics = metrics
        self._admission = admission
        self._thermal = thermal
        self._memory = memory
        self._restarts = 0
        metrics.temperature.set_function(self._celsius)
        metrics.throttle_in.set_function(lambda: _or_nan(thermal.seconds_to_next_level))
        metrics.watts.set_function(lambda: _or_nan(thermal.watts))
        metrics.joules_per_token.set_function(lambda: _or_nan(thermal.joules_per_token))
        for state in SensorState:
            metrics.sensors.labels(state=state.value).set_function(partial(self._sensors, state))
        metrics.memory_available.set_function(self._available_bytes)
        self.admission()
        self.thermal()
        self.memory()

    def admission(self) -> None:
        """Slots and queue have changed."""
        self._metrics.slots.labels(state="busy").set(self._admission.busy)
        self._metrics.slots.labels(state="free").set(max(0, self._admission.limit - self._admission.busy))
        self._metrics.queued.set(self._admission.queued)

    def thermal(self) -> None:
        """The level has changed."""
        for level in ThermalLevel:
            self._metrics.level.labels(level=level.value).set(level is self._thermal.level)

    def memory(self) -> None:
        """The step has changed."""
        self._metrics.memory_steps.set(self._memory.rung)

    def speculation(self, mode: SpeculationMode, reason: Reason, *, unfit: frozenset[SpeculationMode]) -> None:
        """Mode or reason has changed. Modes that must not run are there with their reason, and 0."""
        self._metrics.speculation.clear()
        for each in unfit:
            self._metrics.speculation.labels(mode=each.value, reason=Reason.VOCAB_MISMATCH.value).set(0)
        self._metrics.speculation.labels(mode=mode.value, reason=reason.value).set(1)

    def _available_bytes(self) -> float:
        """Asked at each scrape; NaN when it is not known."""
        return _or_nan(self._memory.available_bytes)

    def _celsius(self) -> float:
        """Asked at each scrape. An unknown temperature is NaN, which no alert compares as cool."""
        return _or_nan(self._thermal.temperature_c)

    def _sensors(self, state: SensorState) -> float:
        """Asked at each scrape."""
        return self._thermal.sensor_counts[state]

    def engine(self, status: EngineStatus) -> None:
        """The engine has changed its state."""
        self._metrics.engine_ready.set(status.state is EngineState.READY)
        if status.restarts > self._restarts:
            self._metrics.engine_restarts.labels(reason="exit").inc(status.restarts - self._restarts)
            self._restarts = status.restarts


def _or_nan(known: float | None) -> float:
    return math.nan if known is None else known
