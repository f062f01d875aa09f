"""The loop that watches memory, with a clock that a test turns and an engine that obeys, hesitates or fails."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from edge.memory.pressure import Pressure, PressureRules
from edge.runtime.port import EngineFacts, EngineState
from edge.service.memory_watch import MemoryWatch
from shared.errors import NotReady, StartFailed
from shared.fleet import BackendState, ThermalLevel
from shared.testing.clock import ManualClock
from tests.edge.service import fakes
from tests.edge.service.fakes import FACTS, EngineServer, Exchange, FakeEngine, chunk, plays
from tests.edge.service.harness import running_agent, until
from tests.edge.service.test_heartbeat import router as router
from tests.edge.service.thermal.test_sensors import zone

MIB = 1 << 20
LARGE = EngineFacts(
    model_id=FACTS.model_id,
    digest=FACTS.digest,
    architecture=FACTS.architecture,
    slots=4,
    context_tokens=2048,
    vocabulary_tokens=FACTS.vocabulary_tokens,
    features=FACTS.features,
)
RULES = PressureRules(128 * MIB, 64 * MIB, 128 * MIB, settle_ms=5_000, dwell_ms=30_000)
PLENTY, SHORT, CRITICAL = Pressure(4096 * MIB), Pressure(126 * MIB), Pressure(10 * MIB)


class _Machine:
    """What the watch reads."""

    def __init__(self) -> None:
        self.now = PLENTY
        self.asked = 0

    def __call__(self) -> Pressure:
        self.asked += 1
        return self.now


class _World:
    """A watch over an engine of four slots."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self.machine = _Machine()
        self.clock = ManualClock()
        self.changes = 0
        self.watch = MemoryWatch(self.machine, engine, RULES, clock=self.clock, interval_s=0.5, on_change=self._changed)

    def _changed(self) -> None:
        self.changes += 1

    async def pass_time(self, seconds: float) -> None:
        """Turn the clock in small steps, with one reading in each."""
        for _ in range(round(seconds * 2)):
            asked = self.machine.asked
            await self.clock.advance(0.5)
            await until(lambda asked=asked: self.machine.asked > asked and not self.watch._read.is_pending)  # type: ignore[misc]
            await asyncio.sleep(0)


@pytest.fixture
async def world(server: EngineServer) -> AsyncIterator[_World]:
    world = _World(FakeEngine(server, LARGE))
    await world.engine.start()
    task = asyncio.create_task(world.watch.run())
    await until(lambda: world.machine.asked == 1 and not world.watch._read.is_pending)
    try:
        yield world
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_shortage_takes_slots_then_context_then_new_work_and_plenty_gives_all_back(world: _World) -> None:
    """One step of each settling time down, one of each dwell up; the engine is asked once for each."""
    world.machine.now = SHORT
    await world.pass_time(30)
    down = [(slots, context) for slots, context, _ in world.engine.taken]
    assert down == [(2, 2048), (1, 2048), (1, 1024), (1, 512)]
    assert not world.watch.admits
    assert world.watch.critical().code == "memory_critical"
    assert world.watch.critical().retry_after_s == 30
    world.machine.now = PLENTY
    await world.pass_time(29)
    assert not world.watch.admits
    await world.pass_time(5)
    assert world.watch.admits
    assert len(world.engine.taken) == 4  # admitting again needs no other engine
    await world.pass_time(140)
    up = [(slots, context) for slots, context, _ in world.engine.taken[4:]]
    assert up == [(1, 1024), (1, 2048), (2, 2048), (4, 2048)]
    assert world.watch.rung == 0


async def test_critical_refuses_with_the_same_reading_and_shrinks_without_a_second_engine(world: _World) -> None:
    world.machine.now = CRITICAL
    await world.pass_time(1)
    assert not world.watch.admits
    assert world.engine.taken == [(1, 512, False)]
    assert world.changes == 1


async def test_a_swap_that_fails_is_tried_again_without_overlap(world: _World) -> None:
    world.engine.failures.append(StartFailed("The engine ended with exit status 3: memory could not be allocated."))
    world.machine.now = SHORT
    await world.pass_time(1)
    world.machine.now = Pressure(200 * MIB)  # enough for what there is, not for more
    await world.pass_time(10)
    assert [(slots, overlap) for slots, _, overlap in world.engine.taken] == [(2, True), (2, False)]
    assert world.watch.step.slots == 2


async def test_a_step_up_that_fails_is_taken_back_and_waits_for_its_dwell_again(world: _World) -> None:
    world.machine.now = SHORT
    await world.pass_time(1)
    world.machine.now = PLENTY
    world.engine.failures.append(StartFailed("no"))
    await world.pass_time(32)
    assert [slots for slots, _, _ in world.engine.taken] == [2, 4]
    assert world.watch.rung == 1
    await world.pass_time(20)
    assert world.watch.rung == 1
    await world.pass_time(20)
    assert world.watch.rung == 0
    assert [slots for slots, _, _ in world.engine.taken] == [2, 4, 4]


async def test_an_engine_that_is_down_is_followed_later(world: _World) -> None:
    world.engine.failures.extend([NotReady("down"), NotReady("down")])
    world.machine.now = CRITICAL
    await world.pass_time(20)
    assert not world.watch.admits
    assert len(world.engine.taken) == 3


async def test_a_tree_that_hangs_says_nothing_and_is_not_asked_again(server: EngineServer) -> None:
    calls = 0

    def hang() -> Pressure:
        nonlocal calls
        calls += 1
        released.wait(20)
        return SHORT

    released = threading.Event()
    engine = FakeEngine(server, LARGE)
    watch = MemoryWatch(hang, engine, RULES, clock=ManualClock(), interval_s=0.5)
    try:
        assert await watch._sample() == Pressure(None)
        released.set()
        assert await watch._sample() == SHORT
        assert calls == 1
    finally:
        released.set()


def tree_with(root: Path, available_mib: int) -> Path:
    (root / "proc").mkdir(parents=True, exist_ok=True)
    part = root / "proc" / "meminfo.part"
    part.write_text(f"MemAvailable:   {available_mib * 1024} kB\n")
    part.replace(root / "proc" / "meminfo")
    return root


QUICK = {"interval_s": 0.02, "settle_s": 0.05, "dwell_s": 0.2}


async def test_a_short_device_refuses_new_work_while_what_runs_goes_on_and_says_so_everywhere(
    server: EngineServer, router: Any, tmp_path: Path
) -> None:
    root = tree_with(tmp_path / "device", 4096)
    engine = FakeEngine(server)
    release = asyncio.Event()

    async def long(exchange: Exchange) -> web.StreamResponse:
        response = await exchange.open()
        await exchange.write(response, fakes.OPENING + chunk({"content": "Pa"}))
        await release.wait()
        for data in (chunk({"content": "ris"}), chunk({}, finish="stop"), fakes.CLOSING, fakes.DONE):
            await exchange.write(response, data)
        return response

    memory = {"root": str(root), **QUICK}
    async with running_agent(engine, memory=memory, router={"url": router[1]}) as running:
        server.scripts.append(long)
        async with running.chat(stream=True) as stream:
            received = await stream.content.readany()
            tree_with(root, 10)
            await until(lambda: not running.agent.memory.admits)
            async with running.chat() as refused:
                assert refused.status == 503
                assert int(refused.headers["Retry-After"]) >= 1
                assert (await refused.json())["error"]["code"] == "memory_critical"
            async with running.session.get(f"{running.url}/readyz") as response:
                assert (response.status, (await response.json())["reason"]) == (503, "memory_critical")
            await until(lambda: router[0].last.state is BackendState.DRAINING)
            assert router[0].last.memory_available_bytes == 10 * MIB
            metrics = await running.metrics()
            assert "isthmus_edge_memory_available_bytes 1.048576e+07" in metrics
            assert 'outcome="memory_critical"' in metrics
            release.set()
            received += await stream.content.read()
        assert received.endswith(b"data: [DONE]\n\n")
        tree_with(root, 4096)
        await until(lambda: running.agent.memory.rung == 0)
        async with running.chat() as response:
            assert response.status == 200
        await until(lambda: router[0].last.state is BackendState.READY)


async def test_cx_the_context_of_a_slot_is_what_is_advertised_before_and_after_a_step(
    server: EngineServer, router: Any, tmp_path: Path
) -> None:
    """Per slot, in the models list, in the heartbeat, and in the refusal of a request that no longer fits."""
    root = tree_with(tmp_path / "device", 4096)
    engine = FakeEngine(server, LARGE)
    memory = {"root": str(root), **QUICK}
    async with running_agent(engine, slots=4, memory=memory, router={"url": router[1]}) as running:

        async def advertised() -> int:
            async with running.session.get(f"{running.url}/v1/models") as response:
                return int((await response.json())["data"][0]["max_model_len"])

        assert await advertised() == 2048
        await until(lambda: router[0].last.models and router[0].last.models[0].context_tokens == 2048)
        assert router[0].last.slots_total == 4
        tree_with(root, 10)
        await until(lambda: bool(router[0].last.models) and router[0].last.models[0].context_tokens == 512)
        assert router[0].last.slots_total == 1
        assert await advertised() == 512
        tree_with(root, 250)  # the low mark and its hysteresis: admitted again, not enlarged
        tree_with(root, 270)
        await until(lambda: running.agent.memory.admits)
        async with running.chat(max_tokens=600) as response:
            assert response.status == 400
            error = (await response.json())["error"]
            assert error["code"] == "context_length_exceeded"
            assert "512" in error["message"]


async def test_heat_and_memory_together_open_only_when_both_allow(server: EngineServer, tmp_path: Path) -> None:
    sensors, root = tmp_path / "sensors", tree_with(tmp_path / "device", 4096)
    zone(sensors, "50000")
    thermal = {"roots": [str(sensors)], "dwell_s": 0.1, "interval_s": 0.02}
    async with running_agent(FakeEngine(server), thermal=thermal, memory={"root": str(root), **QUICK}) as running:
        agent = running.agent
        await until(lambda: agent.thermal.level is ThermalLevel.NOMINAL)
        tree_with(root, 10)
        zone(sensors, "97000")
        await until(lambda: not agent.memory.admits and not agent.thermal.measures.admits)
        zone(sensors, "50000")
        await until(lambda: agent.thermal.level is ThermalLevel.NOMINAL)
        async with running.chat() as refused:
            assert (await refused.json())["error"]["code"] == "memory_critical"
        zone(sensors, "97000")
        await until(lambda: not agent.thermal.measures.admits)
        tree_with(root, 4096)
        await until(lambda: agent.memory.admits)
        async with running.chat() as refused:
            assert (await refused.json())["error"]["code"] == "thermal_critical"
        zone(sensors, "50000")
        await until(lambda: agent.thermal.measures.admits)
        async with running.chat() as response:
            assert response.status == 200


async def test_a_request_that_waited_through_a_swap_is_measured_against_the_new_context(
    server: EngineServer, tmp_path: Path
) -> None:
    """It fitted when it came; the engine it meets is smaller: 400 with both numbers, never a shorter answer."""
    root = tree_with(tmp_path / "device", 4096)
    engine = FakeEngine(server)
    async with running_agent(engine, memory={"root": str(root), **QUICK}) as running:
        server.scripts.append(plays([fakes.OPENING, chunk({"content": "x"})], then="hang"))
        holding = running.session.post(
            f"{running.url}/v1/chat/completions",
            json={"model": fakes.MODEL, "stream": True, "messages": [{"role": "user", "content": "hold"}]},
        )
        async with holding as held:
            await held.content.readany()
            waiting = asyncio.create_task(running.chat(max_tokens=1000).__aenter__())
            await until(lambda: running.agent.admission.queued == 1)
            await engine.take_step(engine.steps()[-2], overlap=True)
            await until(
                lambda: running.agent.served.facts is not None and running.agent.served.facts.context_tokens == 512
            )
        response = await waiting
        assert response.status == 400
        assert (await response.json())["error"]["code"] == "context_length_exceeded"
        response.close()
    assert engine.status.state is EngineState.STOPPED
