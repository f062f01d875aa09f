"""The thermal loop over trees of files and a clock whose hands are turned."""

from __future__ import annotations

import asyncio
import io
import math
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from edge.heat import table_of
from edge.service.thermal import sensors
from edge.service.thermal.ladder import Thresholds
from edge.service.thermal.panel import SensorState, StuckRule
from edge.service.thermal.power import BatteryRules
from edge.service.thermal.sensors import Sample
from edge.service.thermal.watch import Rules, ThermalWatch
from edge.settings import LevelsSettings
from shared import logs
from shared.clock import SystemClock
from shared.fleet import ThermalLevel
from shared.testing.clock import ManualClock
from tests.edge.service.harness import until
from tests.edge.service.thermal.test_sensors import zone

RULES = Rules(
    thresholds=Thresholds(70, 80, 90, 5, dwell_ms=1000, lost_hold_ms=5000),
    table=table_of(LevelsSettings()),
    battery=BatteryRules(low_percent=20, critical_percent=5, empty_percent=2),
    stuck=StuckRule(busy_ms=30_000, below_c=70),
    interval_s=0.02,
)


class _Watched:
    """A watch over one zone, stepped by hand, a second at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock()
        self.changes: list[ThermalLevel] = []
        self.busy = 0.0
        self.watch = ThermalWatch(
            lambda: sensors.read([root], ()),
            RULES,
            clock=self.clock,
            busy_ratio=lambda: self.busy,
            on_change=lambda: self.changes.append(self.watch.level),
        )

    async def observe(self, temp: str | None, times: int = 1) -> None:
        folder = zone(self.root, temp)
        if temp is None:
            (folder / "temp").unlink(missing_ok=True)
        for _ in range(times):
            self.watch.observe(sensors.read([self.root], ()))
            await self.clock.advance(1)


@pytest.fixture
def watched(tmp_path: Path) -> _Watched:
    return _Watched(tmp_path)


async def test_the_level_follows_the_file_and_is_announced_once(watched: _Watched) -> None:
    await watched.observe("50000", 4)
    await watched.observe("95000", 4)
    await watched.observe("50000", 8)
    assert watched.changes == [
        ThermalLevel.NOMINAL,
        ThermalLevel.CRITICAL,
        ThermalLevel.HOT,
        ThermalLevel.WARM,
        ThermalLevel.NOMINAL,
    ]
    assert watched.watch.temperature_c == 50.0


@pytest.mark.parametrize("bad", ["-273150", "", "N/A", None])
async def test_a_sensor_that_fails_makes_the_level_unknown(watched: _Watched, bad: str | None) -> None:
    """TH-01: unknown, value absent, one log line for each change."""
    sink = io.StringIO()
    logs.configure(stream=sink)
    try:
        await watched.observe("50000", 4)
        await watched.observe(bad, 6)
        assert watched.watch.level is ThermalLevel.UNKNOWN
        assert watched.watch.temperature_c is None
        await watched.observe("50000", 6)
        assert watched.watch.level is ThermalLevel.NOMINAL
    finally:
        logs.configure()
    lines = sink.getvalue().splitlines()
    assert sum('"thermal_sensors"' in line for line in lines) == 2
    assert sum('"thermal_level"' in line for line in lines) == 3


async def test_a_cooled_machine_without_sensors_is_nominal_until_one_is_seen(tmp_path: Path) -> None:
    """The word of its owner stands in for sensors that are not there, never for one that is silent or hangs."""
    clock = ManualClock()
    watch = ThermalWatch(lambda: sensors.read([tmp_path], ()), replace(RULES, cooled=True), clock=clock)
    watch.observe(None)
    assert watch.level is ThermalLevel.UNKNOWN
    watch.observe(sensors.read([tmp_path], ()))
    assert (watch.level, watch.temperature_c) == (ThermalLevel.NOMINAL, None)
    for reading, level in (("95000", ThermalLevel.CRITICAL), ("", ThermalLevel.UNKNOWN)):
        zone(tmp_path, reading)
        for _ in range(12):
            watch.observe(sensors.read([tmp_path], ()))
            await clock.advance(1)
        assert watch.level is level


async def test_a_machine_without_sensors_is_told_what_to_say(tmp_path: Path) -> None:
    sink = io.StringIO()
    logs.configure(stream=sink)
    try:
        for cooled in (False, True):
            watch = ThermalWatch(
                lambda: sensors.read([tmp_path], ()), replace(RULES, cooled=cooled), clock=ManualClock()
            )
            watch.observe(sensors.read([tmp_path], ()))
    finally:
        logs.configure()
    told, untold = [line for line in sink.getvalue().splitlines() if '"thermal_sensors"' in line]
    assert "edge.thermal.cooled: true" in told and "hint" not in untold


async def test_a_low_battery_is_a_floor(watched: _Watched) -> None:
    """TH-05"""
    battery = watched.root / "class/power_supply/BAT0"
    battery.mkdir(parents=True)
    for name, value in (("type", "Battery"), ("status", "Discharging"), ("capacity", "12")):
        (battery / name).write_text(value)
    await watched.observe("50000", 4)
    assert watched.watch.level is ThermalLevel.WARM
    (battery / "status").write_text("Charging")
    await watched.observe("50000", 2)
    assert watched.watch.level is ThermalLevel.NOMINAL


async def test_a_sensor_that_does_not_move_under_load_is_no_evidence_of_coolness(watched: _Watched) -> None:
    """Stuck at 27.8 whatever the engine does, as some boards' sensors are: unknown, and known again once it moves."""
    await watched.observe("27800", 60)
    assert watched.watch.level is ThermalLevel.NOMINAL  # at rest nothing has to move
    watched.busy = 1.0
    await watched.observe("27800", 40)
    assert watched.watch.level is ThermalLevel.UNKNOWN
    assert watched.watch.temperature_c is None
    assert list(watched.watch.sensors.values()) == [SensorState.STUCK]
    await watched.observe("28000", 4)
    assert watched.watch.level is ThermalLevel.NOMINAL


async def test_a_sensor_stuck_at_a_hot_value_goes_on_counting(watched: _Watched) -> None:
    watched.busy = 1.0
    await watched.observe("85000", 90)
    assert watched.watch.level is ThermalLevel.HOT


async def test_the_time_to_the_next_level_is_told_before_it_comes(watched: _Watched) -> None:
    """A body with 20 s time constant that would end at 90: the prediction is right within a fifth, long before."""
    watched.busy, told = 1.0, {}
    for second in range(60):
        celsius = 90 - 45 * math.exp(-second / 20)
        await watched.observe(str(round(celsius * 1000)))
        told[second] = (watched.watch.level, watched.watch.seconds_to_next_level)
    reached = next(second for second, (level, _) in told.items() if level is ThermalLevel.WARM)
    for second in range(reached - 6, reached - 2):
        seconds = told[second][1]
        assert seconds is not None
        assert abs(seconds - (reached - second)) < 0.2 * (reached - second) + 2


async def test_the_loop_sees_a_change_and_survives_a_reader_that_fails(tmp_path: Path) -> None:
    zone(tmp_path, "50000")
    broken = threading.Event()

    def read() -> Sample:
        if broken.is_set():
            raise RuntimeError("driver")
        return sensors.read([tmp_path], ())

    watch = ThermalWatch(read, RULES, clock=SystemClock())
    loop = asyncio.create_task(watch.run())
    await until(lambda: watch.level is ThermalLevel.NOMINAL)
    broken.set()
    await until(lambda: watch.level is ThermalLevel.UNKNOWN)
    broken.clear()
    zone(tmp_path, "96000")
    await until(lambda: watch.level is ThermalLevel.CRITICAL)
    assert not watch.measures.admits
    loop.cancel()


async def test_a_driver_that_hangs_costs_one_thread_and_no_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that does not come back counts as a failed reading; no second one is started beside it."""
    monkeypatch.setattr("edge.service.bounded_read._LIMIT_S", 0.02)
    zone(tmp_path, "50000")
    hanging, released, calls = threading.Event(), threading.Event(), []

    def read() -> Sample:
        if hanging.is_set():
            calls.append(1)
            released.wait(20)
        return sensors.read([tmp_path], ())

    watch = ThermalWatch(read, RULES, clock=SystemClock())
    loop = asyncio.create_task(watch.run())
    try:
        await until(lambda: watch.level is ThermalLevel.NOMINAL)
        hanging.set()
        await until(lambda: watch.level is ThermalLevel.UNKNOWN)
        assert len(calls) == 1
    finally:
        hanging.clear()
        released.set()
    await until(lambda: watch.level is ThermalLevel.NOMINAL)
    loop.cancel()
