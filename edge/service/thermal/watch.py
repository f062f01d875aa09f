"""The loop that reads sensors and keeps the thermal level: sensors → panel → ladder → measures, forecast beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from edge.devices.power import Power
from edge.service.bounded_read import BoundedRead
from edge.service.thermal import ladder, power
from edge.service.thermal.energy import EnergyMeter
from edge.service.thermal.forecast import Forecast
from edge.service.thermal.ladder import LadderState, Measures, Table, Thresholds
from edge.service.thermal.panel import Panel, SensorState, StuckRule
from edge.service.thermal.power import BatteryRules, FloorState, PowerState
from edge.service.thermal.sensors import Sample
from shared import logs
from shared.clock import Clock
from shared.fleet import ThermalLevel

_FAST_S = 0.1
_WITHOUT_SENSORS = "The level is unknown, so half of the threads rest; edge.thermal.cooled: true for a cooled machine."


@dataclass(frozen=True, slots=True)
class Rules:
    """What the loop decides by; see `ThermalSettings` for the meaning of each."""

    thresholds: Thresholds
    table: Table
    battery: BatteryRules
    stuck: StuckRule
    interval_s: float
    forecast_period_s: float = 1.0
    cooled: bool = False


class ThermalWatch:
    """Keeps the level in force; `on_change` is called in the event loop after every change of level.

    `busy_ratio` says which share of the engine's slots works now.
    """

    def __init__(
        self,
        read: Callable[[], Sample],
        rules: Rules,
        *,
        clock: Clock,
        busy_ratio: Callable[[], float] = lambda: 0.0,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._read = BoundedRead(read)
        self._rules = rules
        self._clock = clock
        self._busy_ratio = busy_ratio
        self._on_change = on_change
        self._log = logs.get("thermal")
        self._panel = Panel()
        self._ladder = LadderState()
        self._power = PowerState()
        self._floor = FloorState()
        self._forecast = Forecast()
        self._energy = EnergyMeter()
        self._observed_ms = clock.now_ms()
        self._faults: tuple[str, ...] | None = None
        self.level = ThermalLevel.UNKNOWN

    @property
    def temperature_c(self) -> float | None:
        """The trusted temperature; None when it is not known."""
        return self._panel.temperature_c

    @property
    def power(self) -> Power | None:
        """The power supplies as last known."""
        return self._power.power

    @property
    def measures(self) -> Measures:
        """What the level in force takes away."""
        return ladder.measures(self.level, self._rules.table)

    @property
    def seconds_to_next_level(self) -> float | None:
        """When the next level is reached under the present load; None when that is not known or not in sight."""
        target_c = self._rules.thresholds.next_entry_c(self.level)
        if target_c is None:
            return None
        return self._forecast.seconds_to(target_c, self.temperature_c, self._busy_ratio())

    @property
    def watts(self) -> float | None:
        """Power of the processor packages; None when it cannot be read."""
        return self._energy.watts

    @property
    def joules_per_token(self) -> float | None:
        """Energy of one output token; None when it cannot be read."""
        return self._energy.joules_per_token

    @property
    def sensors(self) -> dict[str, SensorState]:
        """The state of each sensor by its name."""
        return self._panel.states()

    @property
    def sensor_counts(self) -> Counter[SensorState]:
        """How many sensors are in each state."""
        return self._panel.counts()

    def generated(self, tokens: int) -> None:
        """Count output tokens, for the energy that each takes."""
        self._energy = self._energy.with_tokens(tokens)

    def observe(self, sample: Sample | None) -> None:
        """Take in one sample; None is a reading that did not come back."""
        now_ms, rules, busy = self._clock.now_ms(), self._rules, self._busy_ratio()
        passed_ms, self._observed_ms = now_ms - self._observed_ms, now_ms
        self._panel = self._panel.after(
            sample.sensors if sample is not None else (),
            now_ms,
            busy_ms=passed_ms * busy,
            stuck=rules.stuck,
            forget_ms=rules.thresholds.lost_hold_ms,
        )
        celsius = self._panel.temperature_c
        self._ladder = ladder.step(self._ladder, celsius, now_ms, rules.thresholds, self._panel.least_c)
        self._forecast = self._forecast.after(celsius, busy, now_ms, period_ms=round(rules.forecast_period_s * 1000))
        self._energy = self._energy.after(sample.energy if sample is not None else (), now_ms, busy_ratio=busy)
        self._power = self._power.after(sample.power if sample is not None else None)
        demanded = power.floor(self._power.power, rules.battery)
        self._floor = self._floor.after(demanded, now_ms, rules.thresholds.dwell_ms)
        self._report_faults(sample)
        level = ThermalLevel.NOMINAL if self._is_cooled(sample) else self._ladder.level
        self._enter(ladder.with_floor(level, self._floor.level))

    async def run(self) -> None:
        """Read and observe until cancelled; a driver that hangs or fails counts as a reading that failed."""
        while True:
            self.observe(await self._sample())
            interval_s = self._rules.interval_s
            await self._clock.sleep(min(_FAST_S, interval_s) if self._panel.unsettled else interval_s)

    def _is_cooled(self, sample: Sample | None) -> bool:
        """Whether the settings speak for a machine that has shown no sensor yet."""
        return (
            self._rules.cooled and sample is not None and not self._panel.tracks and self._ladder.last_seen_ms is None
        )

    def _enter(self, level: ThermalLevel) -> None:
        if level is self.level:
            return
        self._log.info("thermal_level", before=self.level, after=level, celsius=self.temperature_c)
        self.level = level
        self._on_change()

    async def _sample(self) -> Sample | None:
        try:
            return await self._read()
        except Exception:  # noqa: BLE001 - the loop's edge; it counts as a reading that failed
            self._log.exception("sensors_failed")
            return None

    def _report_faults(self, sample: Sample | None) -> None:
        """One log line per change of what cannot be trusted."""
        if sample is None:
            faults: tuple[str, ...] = ("no_answer",)
        elif not self._panel.tracks:
            faults = ("no_sensors",)
        else:
            untrusted = (SensorState.MISSING, SensorState.ABSURD, SensorState.STUCK)
            faults = tuple(sorted(f"{name}:{state}" for name, state in self.sensors.items() if state in untrusted))
        if faults != self._faults and (faults or self._faults):
            told = {} if faults != ("no_sensors",) or self._rules.cooled else {"hint": _WITHOUT_SENSORS}
            self._log.info("thermal_sensors", faults=list(faults), **told)
        self._faults = faults
