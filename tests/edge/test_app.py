"""The agent as a process: start, readiness, `ps`, signals."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
import pytest

from edge.packages.package import Package
from tests.edge.service.fakes import MODEL
from tests.edge.service.harness import until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]
STORY = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "Tell a long story."}]}


@dataclass(slots=True)
class _Process:
    process: asyncio.subprocess.Process
    url: str
    http: aiohttp.ClientSession
    log: Path

    async def status(self, route: str) -> int:
        try:
            async with self.http.get(self.url + route) as response:
                return response.status
        except aiohttp.ClientError:
            return 0

    async def ended(self) -> int:
        async with asyncio.timeout(100):
            return await self.process.wait()

    def story(self, max_tokens: int) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self.http.post(f"{self.url}/v1/chat/completions", json={**STORY, "max_tokens": max_tokens})


@pytest.fixture
async def agent(installed_model: Package, free_port: Callable[[], int], tmp_path: Path) -> AsyncIterator[_Process]:
    """`isthmus edge serve`, ready; ended by its own id."""
    port, log, config = free_port(), tmp_path / "log", tmp_path / "isthmus.yaml"
    settings = {
        "port": port,
        "models_dir": str(installed_model.folder.parent.parent.parent),
        "run_dir": str(tmp_path / "run"),
        "context_tokens": 1024,
        "engine": {"threads": 1},
        "drain_limit_s": 90,
        "keepalive_s": 0,
        "thermal": {"roots": []},
    }
    config.write_text(json.dumps({"edge": settings}))
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "shared.cli", "edge", "serve", "--config", str(config)),
            stderr=sink,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as http:
        running = _Process(process, f"http://127.0.0.1:{port}", http, log)
        try:
            async with asyncio.timeout(60):
                while await running.status("/readyz") != 200:
                    assert process.returncode is None, log.read_text()
                    await asyncio.sleep(0.05)
            yield running
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def test_sigterm_lets_the_stream_finish_and_refuses_the_rest(agent: _Process) -> None:
    """UP-01: not ready at once, the running stream ends with [DONE], exit code 0, no engine left behind."""
    children = psutil.Process(agent.process.pid).children(recursive=True)
    assert children
    async with agent.story(40) as response:
        received = await response.content.readany()
        agent.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            while await agent.status("/readyz") != 503:
                await asyncio.sleep(0.01)
        async with agent.story(5) as refused:
            assert refused.status == 503
            assert (await refused.json())["error"]["code"] == "draining"
        assert await agent.status("/healthz") == 200
        received += await response.content.read()
    assert received.endswith(b"data: [DONE]\n\n")
    assert await agent.ended() == 0
    await until(lambda: not any(child.is_running() for child in children))
    events = [json.loads(line) for line in agent.log.read_text().splitlines()]
    assert not [event for event in events if event.get("level") == "error"]


async def test_a_second_signal_exits_fast(agent: _Process) -> None:
    """UP-01: the stream is cut, the engine is gone, the code says that it was hurried."""
    children = psutil.Process(agent.process.pid).children(recursive=True)
    async with agent.story(900) as response:
        await response.content.readany()
        agent.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            while await agent.status("/readyz") != 503:
                await asyncio.sleep(0.01)
        agent.process.send_signal(signal.SIGTERM)
        assert await agent.ended() == 130
        received = b""
        with contextlib.suppress(aiohttp.ClientError):
            received = await response.content.read()
        assert b"[DONE]" not in received
    await until(lambda: not any(child.is_running() for child in children))


async def test_ps_shows_the_running_agent(agent: _Process) -> None:
    asked = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shared.cli", "edge", "ps", "--url", agent.url, "--json"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    out, _ = await asked.communicate()
    status = json.loads(out)
    assert (status["ready"], status["engine"]["state"], status["state"]) == (True, "ready", "ready")
    assert status["models"][0]["model_id"] == MODEL
    assert status["models"][0]["context_tokens"] == 1024
    assert status["level"] == "unknown"
