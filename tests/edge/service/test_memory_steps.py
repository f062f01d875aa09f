"""The agent over the real engine while another program takes the device's memory, as far as the agent can tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from edge.devices.probe import probe
from edge.packages.package import Package
from edge.runtime.plan import PlanRequest, plan_engine
from edge.runtime.port import EngineState
from edge.runtime.supervisor import SupervisedEngine
from shared.clock import SystemClock
from tests.edge.service.harness import PARIS, Running, running_agent, until
from tests.edge.service.test_memory_watch import QUICK, tree_with

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]
_PLENTY_MIB, _SHORT_MIB, _CRITICAL_MIB = 8192, 127, 20


@pytest.fixture
async def running(installed_model: Package, tmp_path: Path) -> AsyncIterator[Running]:
    """Four slots of 2,048 tokens; at least one of 512 on a device that its tree says has plenty of memory."""
    root = tree_with(tmp_path / "device", _PLENTY_MIB)
    request = PlanRequest(slots=4, context_tokens=2048, threads=1, threads_batch=1)
    engine = SupervisedEngine(
        plan_engine(installed_model, probe(), request),
        clock=SystemClock(),
        run_dir=tmp_path / "run",
        minimum_context_tokens=512,
    )
    memory = {"root": str(root), **QUICK, "settle_s": 3.0}
    async with running_agent(engine, slots=4, queue=64, memory=memory) as running:
        yield running


async def _ask(running: Running, failures: list[str], stop: asyncio.Event) -> int:
    """Ask again and again until told to stop; how often it was answered."""
    answered = 0
    while not stop.is_set():
        async with running.chat(PARIS, stream=True, temperature=0, max_tokens=12) as response:
            received = await response.content.read()
        if response.status == 200 and received.endswith(b"data: [DONE]\n\n") and b"Paris" in received:
            answered += 1
        elif response.status == 503:  # refused before anything was sent, with a time to come back
            assert int(response.headers["Retry-After"]) >= 1
            await asyncio.sleep(0.05)
        else:
            failures.append(received.decode()[-300:])
    return answered


async def test_kv_step_down_and_up_again_fails_no_request_and_frees_memory(running: Running, tmp_path: Path) -> None:
    """Fewer slots and a shorter context by swaps, with requests running all the time; then everything comes back."""
    engine, root = running.agent.parts.engine, tmp_path / "device"
    failures: list[str] = []
    stop = asyncio.Event()
    clients = [asyncio.create_task(_ask(running, failures, stop)) for _ in range(3)]
    assert engine.status.pid is not None
    large_bytes = psutil.Process(engine.status.pid).memory_info().rss
    first = engine.status.pid
    tree_with(root, _SHORT_MIB)
    await until(lambda: _shape(running) == (1, 512), limit_s=120)
    small_bytes = psutil.Process(engine.status.pid).memory_info().rss
    assert large_bytes - small_bytes > (4 * 2048 - 512) * 23040 * 0.9
    await until(lambda: not psutil.pid_exists(first), limit_s=60)
    tree_with(root, _PLENTY_MIB)
    await until(lambda: _shape(running) == (4, 2048), limit_s=120)
    stop.set()
    answered = await asyncio.gather(*clients)
    assert not failures
    assert min(answered) >= 1
    assert engine.status.restarts == 0
    async with running.session.get(f"{running.url}/v1/models") as response:
        assert (await response.json())["data"][0]["max_model_len"] == 2048


async def test_a_stream_runs_to_its_end_while_memory_is_critical(running: Running, tmp_path: Path) -> None:
    engine, root = running.agent.parts.engine, tmp_path / "device"
    async with running.chat("Tell a long story.", stream=True, temperature=0, max_tokens=150) as stream:
        received = await stream.content.readany()
        tree_with(root, _CRITICAL_MIB)
        await until(lambda: not running.agent.memory.admits)
        async with running.chat() as refused:
            assert refused.status == 503
        received += await stream.content.read()
    assert received.endswith(b"data: [DONE]\n\n")
    assert b'"error"' not in received
    await until(lambda: engine.status.state is EngineState.READY and _shape(running) == (1, 512), limit_s=60)
    tree_with(root, _PLENTY_MIB)
    await until(lambda: running.agent.memory.admits)
    async with running.chat(PARIS, temperature=0) as response:
        assert "Paris" in (await response.json())["choices"][0]["message"]["content"]


def _shape(running: Running) -> tuple[int, int]:
    facts = running.agent.served.facts
    return (0, 0) if facts is None else (facts.slots, facts.context_tokens)
