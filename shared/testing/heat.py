"""A simulated device that grows hot by the real work of a real engine: a thermal model that writes a sensor tree.

One body with one resistance and one capacity: dT/dt = (ambient + at_rest + gain * load - T) / tau. Scenarios change
the air around it, or spoil what its sensor shows. Model time runs `compression` times as fast as the clock, and the
agent that reads the tree has its own times divided by the same factor (`edge.thermal.time_scale`).
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from shared.clock import Clock
from shared.testing.scenarios import Scenario

_TICK_S = 0.1
_SPIKE_S = 0.03
"""A bogus value stands for less than the time between two readings."""
_LOOK_S = 1.0
"""Time between two looks for new engine processes: going through all of a machine takes milliseconds."""
_IDLE_W, _BUSY_W = 2.0, 12.0
_ENERGY_RANGE_UJ = 262_143_328_850


@dataclass(frozen=True, slots=True)
class Body:
    """The device: what it adds to the air at rest and at full load (degrees), and its time constant."""

    at_rest_c: float = 10.0
    gain_c: float = 30.0
    tau_s: float = 30.0

    def after(self, celsius: float, ambient_c: float, load_ratio: float, elapsed_s: float) -> float:
        """The temperature `elapsed_s` later."""
        rest_c = ambient_c + self.at_rest_c + self.gain_c * load_ratio
        return rest_c + (celsius - rest_c) * math.exp(-elapsed_s / self.tau_s)


@dataclass(frozen=True, slots=True)
class Course:
    """A scenario over model time: the air in degrees, what the sensor shows beside the truth, and single spikes."""

    duration_s: float
    ambient_c: Callable[[float], float]
    shown_offset_c: Callable[[float], float] = lambda _: 0.0
    spikes: Mapping[int, str] | None = None
    """Readings that are wrong for one moment, by the model second in which they appear."""


def _along(*points: tuple[float, float]) -> Callable[[float], float]:
    """Straight lines through `points` of second and value; level before the first and after the last."""

    def value(second: float) -> float:
        for (start_s, start), (end_s, end) in itertools.pairwise(points):
            if second < end_s:
                return start + (end - start) * max(0.0, second - start_s) / (end_s - start_s)
        return points[-1][1]

    return value


_BOGUS = ("-273150", "125000", "N/A", "-650788984", "0")
COURSES: Mapping[Scenario, Course] = {
    # A fan that stops and starts again: through every level and back.
    Scenario.RAMP: Course(300.0, _along((20, 25), (150, 95), (180, 95), (210, 25))),
    Scenario.HOT_DAY: Course(330.0, _along((10, 25), (120, 58), (200, 58), (260, 25))),
    Scenario.SPIKE: Course(
        120.0, lambda _: 25.0, spikes={second: _BOGUS[second // 4 % len(_BOGUS)] for second in range(4, 110, 4)}
    ),
    # Swings over several thresholds faster than any level may follow.
    Scenario.FLAPPING: Course(
        230.0, _along((0, 25), (30, 60), (140, 60), (160, 25)), lambda second: 8.0 if second % 6 < 3 else -8.0
    ),
}


class SensorTree:
    """A sysfs-shaped tree with one thermal zone and one energy counter. A reader never sees half a value."""

    def __init__(self, root: Path, *, kind: str = "isthmus-simulated") -> None:
        self._zone = root / "class/thermal/thermal_zone0"
        self._package = root / "class/powercap/intel-rapl:0"
        self._kind = kind

    def show(self, text: str) -> None:
        """Make the zone read `text`, usually thousandths of a degree."""
        self._zone.mkdir(parents=True, exist_ok=True)
        _replaced(self._zone / "type", self._kind)
        _replaced(self._zone / "temp", text)

    def show_energy(self, microjoules: int) -> None:
        """Make the counter read `microjoules`."""
        self._package.mkdir(parents=True, exist_ok=True)
        _replaced(self._package / "max_energy_range_uj", str(_ENERGY_RANGE_UJ))
        _replaced(self._package / "energy_uj", str(microjoules % _ENERGY_RANGE_UJ))


class EngineLoad:
    """The share of its cores that the engine of an agent really uses, from the processor time of its children."""

    def __init__(self, agent_pid: Callable[[], int | None], *, cores: int | None = None) -> None:
        self._agent_pid = agent_pid
        # One core is left to the rest of the machine while decoding.
        self._cores = cores or max(1, (os.cpu_count() or 2) - 1)
        self._used_s: dict[int, float] = {}
        self._engines: list[psutil.Process] = []
        self._looked_s = math.inf

    def ratio(self, elapsed_s: float) -> float:
        """The share since the last call, `elapsed_s` ago, from 0 to 1."""
        self._looked_s += elapsed_s
        if self._looked_s >= _LOOK_S:
            self._engines, self._looked_s = self._children(), 0.0
        now = {process.pid: used for process in self._engines if (used := _used_s(process)) is not None}
        spent_s = sum(used - self._used_s[pid] for pid, used in now.items() if pid in self._used_s)
        self._used_s = now
        return min(1.0, max(0.0, spent_s / (elapsed_s * self._cores))) if elapsed_s > 0 else 0.0

    def _children(self) -> list[psutil.Process]:
        pid = self._agent_pid()
        try:
            return [] if pid is None else psutil.Process(pid).children(recursive=True)
        except psutil.Error:
            return []


class SimulatedDevice:
    """Plays one scenario over and over as told by `restart`; after its end the last conditions stay."""

    def __init__(
        self,
        tree: SensorTree,
        scenario: Scenario,
        load: Callable[[float], float],
        *,
        compression: float,
        clock: Clock,
        body: Body | None = None,
    ) -> None:
        self.scenario = scenario
        self.compression = compression
        self._course = COURSES[scenario]
        self._tree = tree
        self._load = load
        self._clock = clock
        self._body = body or Body()
        self._celsius = self._course.ambient_c(0) + self._body.at_rest_c
        self._energy_uj = 0.0
        self._seen_ms = self._began_ms = clock.now_ms()
        self._started = False
        self._spiked: set[int] = set()

    def facts(self) -> dict[str, Any]:
        """What a client of the launcher is told."""
        return {
            "scenario": self.scenario,
            "compression": self.compression,
            "duration_s": self._course.duration_s,
            "elapsed_s": round(self.elapsed_s, 2),
            "celsius": round(self._celsius, 2),
        }

    @property
    def elapsed_s(self) -> float:
        """Model time since the scenario began; 0 until then."""
        return (self._clock.now_ms() - self._began_ms) / 1000 * self.compression if self._started else 0.0

    def restart(self) -> None:
        """Begin the scenario now."""
        self._began_ms, self._started = self._clock.now_ms(), True
        self._spiked.clear()

    async def run(self) -> None:
        """Heat, cool and write until cancelled."""
        while True:
            spike = self._step()
            if spike is not None:
                self._tree.show(spike)
                await self._clock.sleep(_SPIKE_S)
            shown_c = self._celsius + (self._course.shown_offset_c(self.elapsed_s) if self._started else 0.0)
            self._tree.show(str(round(shown_c * 1000)))
            await self._clock.sleep(_TICK_S)

    def _step(self) -> str | None:
        """Move the model to this moment; the bogus value that is due, if one is."""
        now_ms = self._clock.now_ms()
        elapsed_s, self._seen_ms = (now_ms - self._seen_ms) / 1000, now_ms
        load = self._load(elapsed_s)
        ambient_c = self._course.ambient_c(self.elapsed_s)
        self._celsius = self._body.after(self._celsius, ambient_c, load, elapsed_s * self.compression)
        self._energy_uj += (_IDLE_W + (_BUSY_W - _IDLE_W) * load) * elapsed_s * 1e6
        self._tree.show_energy(round(self._energy_uj))
        return self._due_spike()

    def _due_spike(self) -> str | None:
        second = int(self.elapsed_s)
        if not self._started or second in self._spiked:
            return None
        self._spiked.add(second)
        return (self._course.spikes or {}).get(second)


def _used_s(process: psutil.Process) -> float | None:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return None
    return float(times.user + times.system)


def _replaced(path: Path, text: str) -> None:
    half = path.with_name(f".{path.name}")
    half.write_text(f"{text}\n", encoding="ascii")
    half.replace(path)
