"""Faults are brought about at their time, taken back whatever happens, and never silently left out."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from loadtests.demo.control import Control
from loadtests.faults.acts import Commanded, act_for
from loadtests.faults.play import Play, windows
from loadtests.faults.stack import RecorderClient, Stack
from loadtests.samples import began_file
from loadtests.settings import FaultCommand, LoadtestSettings
from shared.errors import IsthmusError, SettingsError
from tests.loadtests.demo.conftest import ScriptedStack
from tests.loadtests.demo.conftest import scripted_stack as scripted_stack

_SENSOR = "class/thermal/thermal_zone0/temp"


class Noted:
    """An act that keeps what was asked of it."""

    def __init__(self, problem: str | None = None) -> None:
        self.calls: list[str] = []
        self._problem = problem

    async def begin(self, for_s: float) -> None:
        self.calls.append("begin")
        if self._problem:
            raise IsthmusError(self._problem)

    async def end(self) -> None:
        self.calls.append("end")


async def _stack(http: aiohttp.ClientSession, scripted: ScriptedStack, control: Control) -> Stack:
    return Stack(http, scripted.url, {}, control, await control.state(), None)


async def _played(
    stack: Stack, folder: Path, act: Any, *, for_s: float = 0.1, cut_after_s: float | None = None
) -> Play:
    samples = folder / "samples.jsonl"
    began_file(samples).write_text(str(time.monotonic()))
    play = Play(stack, samples)
    task = asyncio.create_task(play.run([("edge-dies", 0.0, for_s, act)]))
    async with asyncio.timeout(20):
        while not play.seen.bands or (cut_after_s is None and "end" not in getattr(act, "calls", ["end"])):
            await asyncio.sleep(0.01)
        await asyncio.sleep(cut_after_s or 0.0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return play


def test_faults_come_one_after_the_other_with_pauses() -> None:
    assert windows(["edge-dies"], from_s=30, to_s=60) == [("edge-dies", 30, 60)]
    two = windows(["edge-dies", "cloud-killed"], from_s=30, to_s=70)
    assert two == [("edge-dies", 30, 48), ("cloud-killed", 50, 68)]
    assert windows([], from_s=1, to_s=2) == []


async def test_a_fault_is_taken_back_when_the_run_is_cut_short(scripted_stack: ScriptedStack, tmp_path: Path) -> None:
    act = Noted()
    async with aiohttp.ClientSession() as http, Control(tmp_path / "run" / "up.sock") as control:
        play = await _played(await _stack(http, scripted_stack, control), tmp_path, act, for_s=60, cut_after_s=0.05)
    assert act.calls == ["begin", "end"]
    assert play.seen.bands[0].to_s < 30


async def test_a_fault_that_could_not_be_brought_about_says_so(scripted_stack: ScriptedStack, tmp_path: Path) -> None:
    act = Noted("nobody listens")
    async with aiohttp.ClientSession() as http, Control(tmp_path / "run" / "up.sock") as control:
        play = await _played(await _stack(http, scripted_stack, control), tmp_path, act)
    assert play.seen.bands[0].problem == "could not be brought about: nobody listens"
    assert {look["tier"] for look in play.seen.looks} <= {None, "edge", "cloud"}


async def test_tiers_die_and_come_back_and_heat_climbs_and_goes(scripted_stack: ScriptedStack, tmp_path: Path) -> None:
    settings = LoadtestSettings()
    async with aiohttp.ClientSession() as http, Control(tmp_path / "run" / "up.sock") as control:
        stack = await _stack(http, scripted_stack, control)
        for name in ("edge-dies", "cloud-killed"):
            act = act_for(name, stack, settings)  # type: ignore[arg-type]
            await act.begin(1.0)
            await act.end()
        assert scripted_stack.calls == ["kill edge", "start edge", "kill cloud", "start cloud"]
        heat = act_for("heat-ramp", stack, settings)
        await heat.begin(1.0)
        await asyncio.sleep(0.8)
        assert int((scripted_stack.sensors / _SENSOR).read_text()) > 60_000
        await heat.end()
        assert int((scripted_stack.sensors / _SENSOR).read_text()) == 40_000
        await heat.leave()  # type: ignore[attr-defined]
        assert not (scripted_stack.sensors / _SENSOR).exists()


async def test_what_nothing_here_can_bring_about_is_refused_with_what_would(tmp_path: Path) -> None:
    async with aiohttp.ClientSession() as http, Control(tmp_path / "none.sock") as control:
        elsewhere = Stack(http, "http://127.0.0.1:9", {}, control, None, None)
        for name in ("edge-dies", "heat-ramp", "redis-frozen", "cloud-killed", "scale-to-zero", "router-restart"):
            with pytest.raises(SettingsError, match="fault_commands"):
                act_for(name, elsewhere, LoadtestSettings())  # type: ignore[arg-type]
        recorded = Stack(http, "http://127.0.0.1:9", {}, control, None, RecorderClient(http, "http://127.0.0.1:9"))
        for name in ("cloud-killed", "scale-to-zero"):
            act_for(name, recorded, LoadtestSettings())  # type: ignore[arg-type]


async def test_commands_of_the_settings_bring_a_fault_about_and_their_failure_is_told(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    act = Commanded(FaultCommand(begin=("touch", str(mark)), end=("rm", str(mark))))
    await act.end()
    await act.begin(1.0)
    assert mark.exists()
    await act.end()
    assert not mark.exists()
    for words in (("false",), ("no-such-program-at-all",)):
        with pytest.raises(IsthmusError):
            await Commanded(FaultCommand(begin=words)).begin(1.0)
