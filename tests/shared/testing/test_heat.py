"""The simulated device: its physics, what it writes, and that only real work of real processes heats it."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shared.testing.clock import ManualClock
from shared.testing.heat import COURSES, Body, EngineLoad, SensorTree, SimulatedDevice
from shared.testing.scenarios import Scenario

TEMP = "class/thermal/thermal_zone0/temp"


class _Played:
    """A device that is stepped by hand; `load` is what its engine does."""

    def __init__(self, root: Path, scenario: Scenario, *, load: float = 1.0, compression: float = 4.0) -> None:
        self.clock = ManualClock()
        self.root = root
        self.load = load
        self.device = SimulatedDevice(
            SensorTree(root), scenario, lambda _: self.load, compression=compression, clock=self.clock
        )
        self.shown: list[str] = []

    async def play(self, seconds: float) -> None:
        await asyncio.sleep(0)  # a task that was made just now begins
        for _ in range(round(seconds / 0.1)):
            await self.clock.advance(0.1)
            self.shown.append((self.root / TEMP).read_text().strip())


def test_a_body_rests_where_its_load_and_the_air_put_it() -> None:
    body = Body(at_rest_c=10, gain_c=30, tau_s=30)
    assert body.after(35.0, 25.0, 0.0, 1000) == pytest.approx(35.0)
    assert body.after(35.0, 25.0, 1.0, 1e6) == pytest.approx(65.0)
    assert body.after(35.0, 25.0, 1.0, 30) == pytest.approx(65 - 30 / math.e)
    halves = body.after(body.after(35.0, 25.0, 1.0, 5), 25.0, 1.0, 5)
    assert halves == pytest.approx(body.after(35.0, 25.0, 1.0, 10))  # the step does not matter


@pytest.mark.parametrize("scenario", list(Scenario))
async def test_every_scenario_begins_and_ends_cool(tmp_path: Path, scenario: Scenario) -> None:
    played = _Played(tmp_path, scenario, load=0.5)
    task = asyncio.create_task(played.device.run())
    try:
        await played.play(2)
        assert played.device.elapsed_s == 0  # it waits until it is told to begin
        assert float(played.shown[-1]) < 60_000
        played.device.restart()
        await played.play((COURSES[scenario].duration_s + 60) / 4)
        assert float(played.shown[-1]) < 60_000
    finally:
        task.cancel()


async def test_the_ramp_passes_every_level_whatever_the_engine_does(tmp_path: Path) -> None:
    played = _Played(tmp_path, Scenario.RAMP, load=0.1)
    task = asyncio.create_task(played.device.run())
    try:
        await played.play(1)
        played.device.restart()
        await played.play(50)
        assert max(float(text) for text in played.shown) > 95_000
        assert float(played.shown[5]) < 60_000
    finally:
        task.cancel()


async def test_a_spike_is_one_moment(tmp_path: Path) -> None:
    played = _Played(tmp_path, Scenario.SPIKE)
    task = asyncio.create_task(played.device.run())
    try:
        await played.play(1)
        played.device.restart()
        await played.play(20)
        good = [text for text in played.shown if text.lstrip("-").isdigit() and 0 < int(text) < 100_000]
        assert len(good) > 0.8 * len(played.shown)
    finally:
        task.cancel()


async def test_energy_grows_with_work(tmp_path: Path) -> None:
    played = _Played(tmp_path, Scenario.SPIKE, load=0.0)
    task = asyncio.create_task(played.device.run())
    counter = tmp_path / "class/powercap/intel-rapl:0/energy_uj"
    try:
        await played.play(5)
        idle = int(counter.read_text())
        played.load = 1.0
        await played.play(5)
        assert int(counter.read_text()) - idle > 3 * idle > 0
    finally:
        task.cancel()


def test_load_is_the_processor_time_of_the_agents_children() -> None:
    spinning = "import time\nend = time.process_time() + 30\nwhile time.process_time() < end: pass"
    agent = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spinning!r}])"],
        start_new_session=True,
    )
    try:
        load, idle = EngineLoad(lambda: agent.pid, cores=1), EngineLoad(lambda: None)
        seen, deadline_s = 0.0, time.monotonic() + 30
        while seen <= 0.05 and time.monotonic() < deadline_s:
            time.sleep(0.5)
            seen = load.ratio(1.0)
        assert 0.05 < seen <= 1.0
        assert idle.ratio(1.0) == 0.0
    finally:
        os.killpg(agent.pid, 9)
        agent.wait()


def test_an_agent_that_is_gone_does_nothing() -> None:
    assert EngineLoad(lambda: 2**22 + 1).ratio(1.0) == 0.0
    assert EngineLoad(lambda: None).ratio(0.0) == 0.0
