"""Follows every sensor by itself and decides what the device's temperature is: the hottest that can be trusted.

A sensor is one of: settling, ok, missing, absurd, stuck. Stuck is one whose reading did not move at all over a long
time of work while it tells of a cool device; one that is stuck at a hot value goes on counting, because it errs on the
safe side. When the sensor that decided is lost, the device is blind: the temperature is not known until that sensor
speaks again, whatever cooler ones say. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from edge.service.thermal.readings import MISSES_UNTIL_UNKNOWN, Window
from edge.service.thermal.sensors import Sensor, SensorFault


class SensorState(StrEnum):
    """How far a sensor can be trusted."""

    SETTLING = "settling"
    OK = "ok"
    MISSING = "missing"
    ABSURD = "absurd"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class StuckRule:
    """A reading below `below_c` that did not move over `busy_ms` of work is no evidence of coolness; 0: never so."""

    busy_ms: int
    below_c: float


@dataclass(frozen=True, slots=True)
class Track:
    """The history of one sensor, as far as it matters."""

    window: Window = field(default_factory=Window)
    fault: SensorFault | None = None
    unmoved_busy_ms: float = 0.0
    lost_ms: int | None = None
    stuck: bool = False

    def after(self, sensor: Sensor | None, now_ms: int, busy_ms: float, rule: StuckRule) -> Track:
        """The track after one more sample, in which `sensor` is None if it was not there; `busy_ms` of work passed."""
        celsius = sensor.celsius if sensor is not None else None
        window = self.window.after(celsius)
        if celsius is None:
            fault = sensor.fault if sensor is not None else SensorFault.UNREADABLE
            lost = window.misses >= MISSES_UNTIL_UNKNOWN
            since_ms = self.lost_ms if self.lost_ms is not None else now_ms
            return replace(self, window=window, fault=fault, lost_ms=since_ms if lost else None)
        moved = not self.window.values or celsius != self.window.values[-1]
        unmoved_ms = 0.0 if moved else self.unmoved_busy_ms + busy_ms
        stuck = rule.busy_ms > 0 and unmoved_ms >= rule.busy_ms and celsius < rule.below_c
        return Track(window, unmoved_busy_ms=unmoved_ms, stuck=stuck)

    @property
    def temperature_c(self) -> float | None:
        """What it is trusted to show."""
        return None if self.stuck else self.window.temperature_c

    @property
    def state(self) -> SensorState:
        """How far it can be trusted now."""
        if self.stuck:
            return SensorState.STUCK
        if self.window.temperature_c is not None:
            return SensorState.OK
        if self.window.values or self.fault is None:
            return SensorState.SETTLING
        return SensorState.MISSING if self.fault is SensorFault.UNREADABLE else SensorState.ABSURD


@dataclass(frozen=True, slots=True)
class Panel:
    """All sensors of the device. `decider` is the one that gave the temperature last, also when it is lost since."""

    tracks: Mapping[str, Track] = field(default_factory=dict)
    decider: str | None = None

    def after(
        self, sensors: Iterable[Sensor], now_ms: int, *, busy_ms: float, stuck: StuckRule, forget_ms: int
    ) -> Panel:
        """The panel after one sample; sensors that are lost for `forget_ms` and did not decide are forgotten."""
        seen = {sensor.name: sensor for sensor in sensors}
        tracks: dict[str, Track] = {}
        for name in (*self.tracks, *(name for name in seen if name not in self.tracks)):
            track = self.tracks.get(name, Track()).after(seen.get(name), now_ms, busy_ms, stuck)
            gone = name not in seen and track.lost_ms is not None and now_ms - track.lost_ms >= forget_ms
            if not gone or name == self.decider:
                tracks[name] = track
        after = Panel(tracks, self.decider)
        return after if after.blind else replace(after, decider=after._hottest())

    @property
    def blind(self) -> bool:
        """Whether the sensor that decided cannot be trusted any more."""
        return self.decider is not None and self.tracks[self.decider].temperature_c is None

    @property
    def temperature_c(self) -> float | None:
        """The device's temperature; None when it is not known."""
        return None if self.blind else self.least_c

    @property
    def least_c(self) -> float | None:
        """The hottest that any trusted sensor shows: the device is at least that hot, also when it is blind."""
        known = (track.temperature_c for track in self.tracks.values())
        return max((celsius for celsius in known if celsius is not None), default=None)

    @property
    def unsettled(self) -> bool:
        """Whether the next reading should come soon."""
        return any(track.window.unsettled for track in self.tracks.values())

    def states(self) -> dict[str, SensorState]:
        """The state of each sensor by its name."""
        return {name: track.state for name, track in self.tracks.items()}

    def counts(self) -> Counter[SensorState]:
        """How many sensors are in each state."""
        return Counter(track.state for track in self.tracks.values())

    def _hottest(self) -> str | None:
        known = {name: track.temperature_c for name, track in self.tracks.items()}
        trusted = {name: celsius for name, celsius in known.items() if celsius is not None}
        return max(trusted, key=lambda name: trusted[name]) if trusted else None
