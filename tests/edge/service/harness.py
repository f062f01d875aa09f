"""A whole agent in this process, over a scripted or a real engine, on a free port."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from edge.app import Agent
from edge.devices.probe import probe
from edge.packages.package import Package
from edge.runtime.plan import PlanRequest, plan_engine
from edge.runtime.port import Engine, EngineState
from edge.runtime.supervisor import SupervisedEngine
from edge.settings import EdgeSettings
from shared.clock import Clock, SystemClock
from shared.http.binding import bind
from shared.settings import load
from tests.edge.service.fakes import MODEL

UNWATCHED = {"root": "/nonexistent"}
PARIS = "Which city is the capital of France?"


@dataclass(slots=True)
class Running:
    """An agent that serves."""

    agent: Agent
    url: str
    session: aiohttp.ClientSession

    def chat(self, text: str = PARIS, **fields: Any) -> Any:
        """POST a chat request; use as an async context manager."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}
        return self.session.post(f"{self.url}/v1/chat/completions", json=body)

    async def metrics(self) -> str:
        async with self.session.get(f"{self.url}/metrics") as response:
            return await response.text()


def real_engine(
    package: Package, folder: Path, *, slots: int, context_tokens: int = 1024, batch_tokens: int | None = None
) -> SupervisedEngine:
    """The engine over a real model; one thread, because two make it ten times slower on a busy machine."""
    request = PlanRequest(
        slots=slots, context_tokens=context_tokens, batch_tokens=batch_tokens, threads=1, threads_batch=1
    )
    return SupervisedEngine(plan_engine(package, probe(), request), clock=SystemClock(), run_dir=folder)


def settings_of(**fields: Any) -> EdgeSettings:
    """Settings without sensors, and a queue of 4."""
    return load(EdgeSettings, "edge", port=0, **{"queue": 4, "thermal": {"roots": []}, "memory": UNWATCHED, **fields})


@contextlib.asynccontextmanager
async def running_agent(
    engine: Engine, *, clock: Clock | None = None, wait: bool = True, **fields: Any
) -> AsyncIterator[Running]:
    """An agent over `engine`; with `wait`, it is ready and calibrated when the block begins."""
    settings = settings_of(**fields)
    listener = bind(settings.host, 0, setting="edge.port")
    port = listener.getsockname()[1]
    agent = Agent(settings, engine, clock=clock or SystemClock(), port=port)
    runner = web.AppRunner(agent.web, handler_cancellation=True, access_log=None, shutdown_timeout=0.5)
    # A connection for each request: one that a broken stream has closed must not be taken for another.
    connector = aiohttp.TCPConnector(force_close=True)
    async with agent.running(), aiohttp.ClientSession(connector=connector) as session:
        await runner.setup()
        await web.SockSite(runner, listener).start()
        try:
            if wait:
                await until(lambda: engine.status.state in (EngineState.READY, EngineState.FAILED))
                await until(lambda: agent.rates.decode_tokens_per_s is not None and agent.admission.busy == 0)
            yield Running(agent, f"http://127.0.0.1:{port}", session)
        finally:
            await runner.cleanup()


async def until(condition: Callable[[], bool], *, limit_s: float = 20.0) -> None:
    """Return once `condition` holds; TimeoutError after `limit_s`."""
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.005)


async def received_of(response: aiohttp.ClientResponse) -> bytes:
    """Everything that arrives, also of a stream that is cut."""
    received = b""
    try:
        async for part in response.content.iter_any():
            received += part
    except aiohttp.ClientPayloadError:
        pass
    return received


def idle(running: Running) -> bool:
    """Whether nothing is counted any more: no slot, no place in the line, no request."""
    agent = running.agent
    return agent.admission.busy == 0 and agent.admission.queued == 0 and agent.lifecycle.in_flight == 0
