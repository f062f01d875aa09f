"""Swapping the real engine for one with another plan: nobody notices, and a bad one changes nothing."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace

import aiohttp
import psutil
import pytest

from edge.devices.probe import probe
from edge.packages.package import Package
from edge.runtime.plan import PlanRequest, StaticPlan, plan_engine
from edge.runtime.port import EngineState, EngineStatus
from edge.runtime.supervisor import SupervisedEngine
from shared.errors import NotReady, StartFailed

pytestmark = pytest.mark.engine

MakeEngine = Callable[..., SupervisedEngine]
Session = Callable[..., aiohttp.ClientSession]
Until = Callable[[Callable[[], bool]], Awaitable[None]]
STORY = {"prompt": "Once upon a time", "n_predict": 200, "ignore_eos": True, "temperature": 0, "stream": True}


@pytest.fixture
def smaller(installed_model: Package) -> StaticPlan:
    """One slot of 512 tokens instead of two of 1,024."""
    return plan_engine(installed_model, probe(), PlanRequest(slots=1, context_tokens=512, threads=1, threads_batch=1))


async def slots_of(http: aiohttp.ClientSession) -> list[int]:
    async with http.get("/slots") as response:
        return [slot["n_ctx"] for slot in await response.json()]


async def test_a_running_stream_goes_on_to_its_end_while_new_requests_meet_the_new_engine(
    make_engine: MakeEngine, session: Session, smaller: StaticPlan, until: Until
) -> None:
    engine = make_engine()
    await engine.start()
    seen: list[EngineStatus] = []
    engine.subscribe(seen.append)
    old = engine.status.pid
    assert old is not None
    with engine.using() as connection:
        async with session(connection) as http, http.post("/completion", json=STORY) as stream:
            await stream.content.readline()
            await engine.swap(smaller)
            assert engine.status.pid not in (None, old)
            assert engine.status.facts is not None
            assert (engine.status.facts.slots, engine.status.facts.context_tokens) == (1, 512)
            async with session(engine.connection()) as fresh:
                assert await slots_of(fresh) == [512]
            assert psutil.pid_exists(old)
            received = await stream.content.read()
            assert b'"stop":true' in received
    await until(lambda: not psutil.pid_exists(old))
    assert {status.state for status in seen} == {EngineState.READY}
    assert engine.status.restarts == 0


async def test_after_a_swap_a_crash_restarts_the_new_plan(
    make_engine: MakeEngine, session: Session, smaller: StaticPlan, until: Until
) -> None:
    engine = make_engine()
    await engine.start()
    await engine.swap(smaller)
    assert engine.status.pid is not None
    os.kill(engine.status.pid, signal.SIGKILL)
    await until(lambda: engine.status.restarts == 1 and engine.status.state is EngineState.READY)
    async with session(engine.connection()) as http:
        assert await slots_of(http) == [512]


async def test_a_successor_that_does_not_start_changes_nothing(
    make_engine: MakeEngine, session: Session, smaller: StaticPlan
) -> None:
    class Forged(type(smaller.options)):  # type: ignore[misc]
        def wire(self) -> dict[str, str | int | bool]:
            return {**super().wire(), "n_ctx": 1}  # aborts natively

    options = Forged(**{name: getattr(smaller.options, name) for name in smaller.options.__dataclass_fields__})
    engine = make_engine()
    await engine.start()
    before, children = engine.status, len(psutil.Process().children())
    with pytest.raises(StartFailed, match="SIGABRT"):
        await engine.swap(replace(smaller, options=options))
    assert engine.status == before
    assert len(psutil.Process().children()) == children
    async with session(engine.connection()) as http:
        assert await slots_of(http) == [1024, 1024]


async def test_without_overlap_the_old_one_ends_before_the_new_one_starts(
    make_engine: MakeEngine, session: Session, smaller: StaticPlan, until: Until
) -> None:
    """The running request ends first; new ones are refused with a time, never broken."""
    engine = make_engine()
    await engine.start()
    old = engine.status.pid
    assert old is not None
    own = psutil.Process()
    before = len(own.children())
    most = 0
    with engine.using() as connection:
        async with session(connection) as http, http.post("/completion", json=STORY) as stream:
            await stream.content.readline()
            swapping = asyncio.create_task(engine.swap(smaller, overlap=False))
            await until(lambda: engine.status.state is not EngineState.READY)
            with pytest.raises(NotReady) as refused:
                engine.connection()
            assert refused.value.retry_after_s == 1
            assert b'"stop":true' in await stream.content.read()
    while engine.status.state is not EngineState.READY:
        most = max(most, len(own.children()))
        await asyncio.sleep(0.01)
    await swapping
    assert most <= before
    assert engine.status.pid != old
    async with session(engine.connection()) as http:
        assert await slots_of(http) == [512]


async def test_a_swap_during_a_crash_takes_over(make_engine: MakeEngine, smaller: StaticPlan, until: Until) -> None:
    engine = make_engine()
    await engine.start()
    assert engine.status.pid is not None
    swapping = asyncio.create_task(engine.swap(smaller))
    os.kill(engine.status.pid, signal.SIGKILL)
    await swapping
    await until(lambda: engine.status.state is EngineState.READY)
    assert engine.status.facts is not None
    assert engine.status.facts.context_tokens == 512


async def test_a_stopped_engine_cannot_be_swapped_and_a_stop_ends_a_swap(
    make_engine: MakeEngine, smaller: StaticPlan, until: Until
) -> None:
    engine = make_engine()
    with pytest.raises(NotReady):
        await engine.swap(smaller)
    await engine.start()
    children = {child.pid for child in psutil.Process().children()}
    swapping = asyncio.create_task(engine.swap(smaller))
    await until(lambda: bool({child.pid for child in psutil.Process().children()} - children))
    await engine.stop()
    with pytest.raises(NotReady):
        await swapping
    assert engine.status.state is EngineState.STOPPED
    assert {child.pid for child in psutil.Process().children()} <= children


async def test_a_stop_in_the_middle_of_an_ending_leaves_no_process(
    make_engine: MakeEngine, smaller: StaticPlan, until: Until
) -> None:
    """The old process has been told to end and has not yet: a stop at that moment ends it for good."""
    engine = make_engine()
    await engine.start()
    old = engine.status.pid
    assert old is not None
    process = psutil.Process(old)
    process.suspend()  # it will not obey SIGTERM
    await engine.swap(smaller)
    await until(lambda: engine.status.pid != old)
    await asyncio.wait_for(engine.stop(), 20)
    assert not psutil.pid_exists(old)
    assert engine.status.state is EngineState.STOPPED


async def test_threads_that_are_taken_away_stay_away_in_every_later_step(
    make_engine: MakeEngine, installed_model: Package, until: Until
) -> None:
    request = PlanRequest(slots=2, context_tokens=1024, threads=2, threads_batch=2)
    engine = make_engine(plan_engine(installed_model, probe(), request))
    await engine.start()
    first = engine.status.pid
    await engine.use_threads(0.9)  # rounds down to one of two
    assert engine.plan.options.thread_counts == (1, 1)
    second = engine.status.pid
    assert second != first
    assert not engine.would_change_threads(0.5)
    await engine.use_threads(0.5)  # nothing more to take: no swap
    assert engine.status.pid == second
    await engine.take_step(engine.steps()[1], overlap=True)
    assert engine.plan.options.thread_counts == (1, 1)
    await engine.use_threads(1.0)
    assert engine.plan.options.thread_counts == (2, 2)
    assert engine.status.state is EngineState.READY


async def test_threads_of_a_stopped_engine_stay_as_they_are(make_engine: MakeEngine, installed_model: Package) -> None:
    request = PlanRequest(slots=1, context_tokens=512, threads=2, threads_batch=2)
    engine = make_engine(plan_engine(installed_model, probe(), request))
    with pytest.raises(NotReady):
        await engine.use_threads(0.5)
    assert not engine.would_change_threads(1.0)
