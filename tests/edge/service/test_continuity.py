"""Requests while the engine is swapped, and while it is killed: a swap is noticed by nobody, a crash by its streams."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from edge.devices.probe import probe
from edge.packages.package import Package
from edge.runtime.plan import PlanRequest, plan_engine
from edge.runtime.port import EngineState
from edge.runtime.restart import RestartPolicy
from edge.runtime.supervisor import SupervisedEngine
from shared.clock import SystemClock
from tests.edge.service.harness import Running, idle, received_of, running_agent, until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
_CLIENTS = 4


def _engine(package: Package, folder: Path, *, slots: int) -> SupervisedEngine:
    request = PlanRequest(slots=slots, context_tokens=1024, threads=1, threads_batch=1)
    policy = RestartPolicy(base_s=0.01, cap_s=0.05)
    return SupervisedEngine(plan_engine(package, probe(), request), clock=SystemClock(), run_dir=folder, policy=policy)


async def _requests(running: Running, count: int, seen: Counter[str], done: asyncio.Event) -> None:
    left = iter(range(count))

    async def client() -> None:
        for number in left:
            async with running.chat(f"Say {number}.", max_tokens=2, stream=number % 2 == 0) as response:
                body = await response.read()
                whole = b"[DONE]" in body or b'"finish_reason"' in body
                seen[f"{response.status}{'' if whole and b'error' not in body else ' broken'}"] += 1

    await asyncio.gather(*(client() for _ in range(_CLIENTS)))
    done.set()


@pytest.mark.parametrize(
    ("count", "overlaps"), [(40, (True, False)), pytest.param(1000, (True,) * 20, marks=pytest.mark.slow)]
)
async def test_no_request_fails_because_of_a_swap(
    installed_model: Package, tmp_path: Path, count: int, overlaps: tuple[bool, ...]
) -> None:
    """UP-02 kind: requests queue, stream and start while one engine after another takes over, or, where memory does not
    hold both, comes after the other."""
    engine = _engine(installed_model, tmp_path / "run", slots=2)
    async with running_agent(engine, queue=16) as running:
        seen: Counter[str] = Counter()
        done, pids = asyncio.Event(), {engine.status.pid}
        asked = asyncio.create_task(_requests(running, count, seen, done))
        for number, overlap in enumerate(overlaps):
            share = count * (number + 1) // (len(overlaps) + 1)
            await until(lambda share=share: seen.total() >= share, limit_s=300)  # type: ignore[misc]
            await engine.swap(engine.plan.shape(2, 512 if number % 2 == 0 else 1024), overlap=overlap)
            await until(lambda: engine.status.state is EngineState.READY)
            pids.add(engine.status.pid)
            assert not done.is_set()
        await asked
        assert seen == {"200": count}
        assert len(pids) == len(overlaps) + 1
        assert engine.status.restarts == 0
        await until(lambda: idle(running))


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
async def test_the_agent_outlives_every_crash_of_its_engine(
    installed_model: Package, tmp_path: Path, kills: int
) -> None:
    """SSE-05: each stream that is cut ends with one error event; the next engine answers; nothing else is noticed."""
    engine = _engine(installed_model, tmp_path / "run", slots=1)
    async with running_agent(engine) as running:
        for number in range(kills):
            pid = engine.status.pid
            assert pid is not None
            async with running.chat("Tell a long story.", stream=True, max_tokens=700) as response:
                received = await response.content.readany()
                os.kill(pid, signal.SIGKILL)
                received += await received_of(response)
            events = [event for event in received.split(b"\n\n") if event]
            assert sum(b'"error"' in event for event in events) == 1
            assert b'"error"' in events[-1]
            assert b"[DONE]" not in received
            async with running.session.get(f"{running.url}/healthz") as alive:
                assert alive.status == 200
            await until(lambda pid=pid: engine.status.state is EngineState.READY and engine.status.pid != pid)  # type: ignore[misc]
            assert engine.status.restarts == number + 1
            async with running.chat(temperature=0, max_tokens=8) as answer:
                assert "Paris" in (await answer.json())["choices"][0]["message"]["content"]
        await until(lambda: idle(running))
