"""Plans and engines for tests: one thread, a small context, the real model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest

from edge.devices.probe import probe
from edge.packages.package import Package
from edge.runtime.plan import PlanRequest, StaticPlan, plan_engine
from edge.runtime.port import EngineConnection
from edge.runtime.restart import RestartPolicy
from edge.runtime.supervisor import SupervisedEngine
from shared.clock import SystemClock

QUICK = RestartPolicy(base_s=0.01, cap_s=0.05)


@pytest.fixture(scope="session")
def plan(installed_model: Package) -> StaticPlan:
    """The default model on one thread, two slots of 1,024 tokens."""
    request = PlanRequest(slots=2, context_tokens=1024, threads=1, threads_batch=1)
    return plan_engine(installed_model, probe(), request)


@pytest.fixture
async def make_engine(plan: StaticPlan, tmp_path: Path) -> AsyncIterator[Callable[..., SupervisedEngine]]:
    """A function that builds engines, all of which are stopped at the end."""
    engines: list[SupervisedEngine] = []

    def make(chosen: StaticPlan = plan, *, run_dir: Path = tmp_path / "run") -> SupervisedEngine:
        engine = SupervisedEngine(chosen, clock=SystemClock(), run_dir=run_dir, policy=QUICK)
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        await engine.stop()


@pytest.fixture
def until() -> Callable[..., object]:
    """A coroutine function that waits until a condition holds, at most 30 s."""

    async def wait(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.01)

    return wait


@pytest.fixture
def session() -> Callable[[EngineConnection], aiohttp.ClientSession]:
    """A function that opens an HTTP session to an engine."""

    def open_session(connection: EngineConnection, **headers: str) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connection.base_url,
            connector=aiohttp.UnixConnector(path=str(connection.socket_path), force_close=True),
            headers={**connection.headers, **headers},
        )

    return open_session
