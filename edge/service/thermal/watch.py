"""The loop that reads sensors and keeps the thermal level: sensors → window → ladder → measures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from edge.devices.power import Power
from edge.service.thermal import ladder, power
from edge.service.thermal.ladder import LadderState, Measures, Thresholds
from edge.service.thermal.power import PowerState
from edge.service.thermal.readings import Window, hottest_c
from edge.service.thermal.sensors import Sample
from shared import logs
from shared.clock import Clock
from shared.fleet import ThermalLevel

_FAST_S = 0.1
_READ_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Rules:
    """What the loop decides by; see `ThermalSettings` for the meaning of each."""

    thresholds: Thresholds
    hot_output_cap_tokens: int
    battery_low_percent: float
    battery_critical_percent: float
    interval_s: float


class ThermalWatch:
    """Keeps the level in force; `on_change` is called in the event loop after every change of level."""

    def __init__(
        self, read: Callable[[], Sample], rules: Rules, *, clock: Clock, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._read = read
        self._rules = rules
        self._clock = clock
        self._on_change = on_change
        self._log = logs.get("thermal")
        self._window = Window()
        self._ladder = LadderState()
        self._power = PowerState()
        self._faults: tuple[str, ...] | None = None
        self._reading: asyncio.Future[Sample] | None = None
        self.level = ThermalLevel.UNKNOWN

    @property
    def temperature_c(self) -> float | None:
        """The trusted temperature; None when it is not known."""
        return self._window.temperature_c

    @property
    def power(self) -> Power | None:
        """The power supplies as last known."""
        return self._power.power

    @property
    def measures(self) -> Measures:
        """What the level in force takes away."""
        return ladder.measures(self.level, hot_output_cap_tokens=self._rules.hot_output_cap_tokens)

    def observe(self, sample: Sample | None) -> None:
        """Take in one sample; None is a reading that did not come back."""
        sensors = sample.sensors if sample is not None else ()
        self._window = self._window.after(hottest_c(sensor.celsius for sensor in sensors))
        self._ladder = ladder.step(
            self._ladder, self._window.temperature_c, self._clock.now_ms(), self._rules.thresholds
        )
        self._power = self._power.after(sample.power if sample is not None else None)
        self._report_faults(sample)
        demanded = power.floor(
            self._power.power,
            low_percent=self._rules.battery_low_percent,
            critical_percent=self._rules.battery_critical_percent,
        )
        level = ladder.with_floor(self._ladder.level, demanded)
        if level is not self.level:
            self._log.info("thermal_level", before=self.level, after=level, celsius=self.temperature_c)
            self.level = level
            self._on_change()

    async def run(self) -> None:
        """Read and observe until cancelled; a driver that hangs or fails counts as a reading that failed."""
        while True:
            self.observe(await self._sample())
            # A device without sensors is never settled, and need not be asked more often for it.
            hurry = self._window.unsettled and self._window.values
            await self._clock.sleep(min(_FAST_S, self._rules.interval_s) if hurry else self._rules.interval_s)

    async def _sample(self) -> Sample | None:
        # A read that hangs in a driver keeps its thread; the next round waits on the same one, it starts no other.
        if self._reading is None:
            self._reading = asyncio.ensure_future(asyncio.to_thread(self._read))
        done, _ = await asyncio.wait({self._reading}, timeout=_READ_LIMIT_S)
        if not done:
            return None
        finished, self._reading = self._reading, None
        try:
            return finished.result()
        except Exception:  # noqa: BLE001 - the loop's edge; it counts as a reading that failed
            self._log.exception("sensors_failed")
            return None

    def _report_faults(self, sample: Sample | None) -> None:
        """One log line per change of what cannot be read."""
        if sample is None:
            faults: tuple[str, ...] = ("no_answer",)
        elif not sample.sensors:
            faults = ("no_sensors",)
        else:
            faults = tuple(sorted({f"{s.kind[:32]}:{s.fault}" for s in sample.sensors if s.fault is not None}))
        if faults != self._faults and (faults or self._faults):
            self._log.info("thermal_sensors", faults=list(faults))
        self._faults = faults
