"""An idle engine gives its memory back, stays ready, and wakes for the next request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import aiohttp
import psutil
import pytest

from edge.devices.probe import probe
from edge.packages.package import Package
from edge.runtime.options import EngineOptions
from edge.runtime.plan import PlanRequest, plan_engine
from edge.runtime.port import EngineState
from edge.runtime.supervisor import SupervisedEngine

pytestmark = pytest.mark.engine

_QUESTION = {
    "messages": [{"role": "user", "content": "Which city is the capital of France?"}],
    "temperature": 0,
    "max_tokens": 8,
}


async def _asked(http: aiohttp.ClientSession) -> str:
    async with http.post("/v1/chat/completions", json=_QUESTION) as response:
        assert response.status == 200
        return str((await response.json())["choices"][0]["message"]["content"])


async def test_an_idle_engine_sleeps_and_wakes(
    installed_model: Package,
    make_engine: Callable[..., SupervisedEngine],
    session: Callable[..., aiohttp.ClientSession],
) -> None:
    request = PlanRequest(context_tokens=8192, threads=1, threads_batch=1, sleep_after_s=1)
    plan = plan_engine(installed_model, probe(), request)
    engine = make_engine(plan)
    await engine.start()
    assert engine.status.pid is not None
    process = psutil.Process(engine.status.pid)
    async with session(engine.connection()) as http:
        assert "Paris" in await _asked(http)
        awake_bytes = process.memory_info().rss
        async with asyncio.timeout(30):
            while process.memory_info().rss > awake_bytes - plan.capacity.kv_bytes:
                await asyncio.sleep(0.1)
        assert engine.status.state is EngineState.READY
        assert "Paris" in await _asked(http)
    assert process.is_running()
    assert engine.status.restarts == 0


def test_sleep_is_off_unless_asked_for() -> None:
    options = EngineOptions(model_alias="m", context_tokens=512, slots=1, threads=1, threads_batch=1)
    assert options.wire()["sleep_idle_seconds"] == -1
    assert replace(options, sleep_after_s=60).wire()["sleep_idle_seconds"] == 60
