"""The real engine under supervision: ready, killed, corrupted, stopped, orphaned."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import aiohttp
import psutil
import pytest

from edge.devices.probe import probe
from edge.memory.kv import KvType
from edge.packages.library import Library
from edge.packages.package import Package
from edge.runtime.liveness import LivenessRules
from edge.runtime.plan import PlanRequest, StaticPlan, plan_engine
from edge.runtime.port import EngineState, EngineStatus
from edge.runtime.supervisor import SupervisedEngine
from shared.clock import SystemClock
from shared.errors import NotReady

from .conftest import QUICK

pytestmark = pytest.mark.engine

MakeEngine = Callable[..., SupervisedEngine]
Session = Callable[..., aiohttp.ClientSession]
Until = Callable[[Callable[[], bool]], Awaitable[None]]

QUESTION = {
    "messages": [{"role": "user", "content": "Which city is the capital of France?"}],
    "temperature": 0,
    "max_tokens": 16,
}
LONG = {**QUESTION, "max_tokens": 800, "stream": True, "ignore_eos": True}


async def answer(session: aiohttp.ClientSession) -> str:
    async with session.post("/v1/chat/completions", json=QUESTION) as response:
        assert response.status == 200
        return str((await response.json())["choices"][0]["message"]["content"])


async def test_ready_means_that_it_answers(make_engine: MakeEngine, session: Session, plan: StaticPlan) -> None:
    engine = make_engine()
    seen: list[EngineStatus] = []
    engine.subscribe(seen.append)
    with pytest.raises(NotReady):
        engine.connection()
    await engine.start()
    assert [status.state for status in seen] == [EngineState.STARTING, EngineState.READY]
    facts = engine.status.facts
    assert facts is not None
    assert (facts.digest, facts.slots, facts.context_tokens) == (plan.package.digest, 2, 1024)
    async with session(engine.connection()) as http:
        assert "Paris" in await answer(http)
        async with http.get("/slots") as response:
            assert [slot["n_ctx"] for slot in await response.json()] == [1024, 1024]
    await engine.stop()
    await engine.stop()
    assert engine.status.state is EngineState.STOPPED
    with pytest.raises(NotReady):
        engine.connection()
    await engine.start()
    assert engine.status.state is EngineState.READY


async def test_the_socket_is_private_and_needs_the_secret(
    make_engine: MakeEngine, session: Session, tmp_path: Path
) -> None:
    engine = make_engine()
    await engine.start()
    connection, pid = engine.connection(), engine.status.pid
    assert pid is not None
    assert connection.socket_path is not None
    assert stat.S_IMODE(connection.socket_path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(connection.socket_path.stat().st_mode) & 0o077 == 0
    secret = connection.headers["Authorization"].removeprefix("Bearer ")
    process = psutil.Process(pid)
    assert secret not in " ".join(process.cmdline())
    assert secret not in json.dumps(process.environ())
    assert secret not in repr(connection)
    assert not [c for c in process.net_connections("inet") if c.status == psutil.CONN_LISTEN]
    async with (
        session(connection, Authorization="Bearer other") as http,
        http.post("/v1/chat/completions", json=QUESTION) as response,
    ):
        assert response.status == 401
    await engine.stop()
    assert list(connection.socket_path.parent.iterdir()) == []


async def test_the_environment_of_the_agent_stays_with_the_agent(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ISTHMUS__EDGE__KEYS", "not for the engine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not for the engine")
    engine = make_engine()
    await engine.start()
    assert engine.status.pid is not None
    environment = psutil.Process(engine.status.pid).environ()
    assert "not for the engine" not in environment.values()
    assert environment["GGML_NO_BACKTRACE"] == "1"


async def test_the_memory_that_was_planned_is_not_exceeded(
    make_engine: MakeEngine, session: Session, plan: StaticPlan
) -> None:
    """After a prompt of many micro-batches, so that buffers touched on first use count."""
    engine = make_engine()
    await engine.start()
    pid = engine.status.pid
    assert pid is not None
    body = {"prompt": "one two three four five six seven eight nine ten " * 20, "n_predict": 2}
    async with session(engine.connection()) as http, http.post("/completion", json=body) as response:
        assert response.status == 200
        assert (await response.json())["tokens_evaluated"] > 190
    memory = psutil.Process(pid).memory_full_info()
    assert memory.rss - memory.shared < plan.capacity.kv_bytes + plan.capacity.overhead_bytes


async def test_kill_9_in_the_middle_of_a_stream_leads_to_a_restart(
    make_engine: MakeEngine, session: Session, until: Until
) -> None:
    engine = make_engine()
    await engine.start()
    for restarts in (1, 2):
        pid = engine.status.pid
        assert pid is not None
        async with session(engine.connection()) as http, http.post("/v1/chat/completions", json=LONG) as stream:
            await stream.content.readline()
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(aiohttp.ClientError):
                while await stream.content.readline():
                    pass
        await until(lambda: engine.status.state is not EngineState.READY)
        with pytest.raises(NotReady) as refused:
            engine.connection()
        assert refused.value.retry_after_s == 1
        await until(lambda: engine.status.state is EngineState.READY)
        assert engine.status.restarts == restarts
        assert engine.status.pid != pid
        assert engine.status.reason == "The engine ended with SIGKILL."
        async with session(engine.connection()) as http:
            assert "Paris" in await answer(http)


async def test_an_abort_in_native_code_is_a_status_with_its_place(
    make_engine: MakeEngine, plan: StaticPlan, until: Until
) -> None:
    """`n_ctx=1` aborts the engine at load; the closed options cannot say it, so the message is forged here."""

    class Forged(type(plan.options)):  # type: ignore[misc]
        def wire(self) -> dict[str, str | int | bool]:
            return {**super().wire(), "n_ctx": 1}

    options = Forged(**{name: getattr(plan.options, name) for name in plan.options.__dataclass_fields__})
    engine = make_engine(replace(plan, options=options))
    await engine.start()
    assert engine.status.state is EngineState.RESTARTING
    assert engine.status.reason is not None
    assert engine.status.reason.startswith("The engine ended with SIGABRT: native assertion at common.cpp:")
    await until(lambda: engine.status.restarts >= 2)  # it goes on trying, and the agent goes on living


def copied(tmp_path: Path, package: Package) -> Package:
    """The package in a folder of its own, where it may be damaged."""
    folder = tmp_path / "copy"
    shutil.copytree(package.folder, folder)
    (folder / "model.gguf").chmod(0o644)
    return replace(package, folder=folder)


@pytest.mark.parametrize("damage", ["truncated", "changed", "gone", "not_a_model"])
async def test_gg_01_a_corrupt_file_fails_for_good_before_any_process_starts(
    make_engine: MakeEngine, plan: StaticPlan, tmp_path: Path, damage: str
) -> None:
    serving = make_engine(run_dir=tmp_path / "serving")
    await serving.start()
    package = copied(tmp_path, plan.package)
    path = package.model_path
    if damage == "truncated":
        os.truncate(path, path.stat().st_size - 1)
    elif damage == "gone":
        path.unlink()
    elif damage == "not_a_model":
        path.write_bytes(b"not a model" * 100)
    else:
        with path.open("r+b") as file:
            file.seek(-4, os.SEEK_END)
            file.write(b"\x01\x02\x03\x04")
    children = len(psutil.Process().children())
    engine = make_engine(replace(plan, package=package), run_dir=tmp_path / "other")
    await engine.start()
    assert engine.status.state is EngineState.FAILED
    assert engine.status.reason
    assert engine.status.retry_after_s > 1
    assert len(psutil.Process().children()) == children
    assert serving.status.state is EngineState.READY


async def test_a_file_replaced_after_the_start_is_not_served_at_the_restart(
    make_engine: MakeEngine, plan: StaticPlan, tmp_path: Path, until: Until
) -> None:
    package = copied(tmp_path, plan.package)
    engine = make_engine(replace(plan, package=package))
    await engine.start()
    assert engine.status.state is EngineState.READY
    other = tmp_path / "other.gguf"
    data = bytearray(package.model_path.read_bytes())
    data[-1] ^= 1
    other.write_bytes(data)
    other.replace(package.model_path)
    assert engine.status.pid is not None
    os.kill(engine.status.pid, signal.SIGKILL)
    await until(lambda: engine.status.state is EngineState.FAILED)
    assert engine.status.reason is not None
    assert "does not hash" in engine.status.reason


async def test_weights_that_are_no_numbers_are_refused_by_the_engine_with_a_reason(
    make_engine: MakeEngine, plan: StaticPlan, tmp_path: Path, until: Until
) -> None:
    damaged = tmp_path / "nan.gguf"
    shutil.copy(plan.package.model_path, damaged)
    damaged.chmod(0o644)
    norm_bytes = 576 * 4
    with damaged.open("r+b") as file:
        file.seek(-norm_bytes, os.SEEK_END)  # output_norm.weight, 32-bit floats
        file.write(b"\xff\xff\xff\x7f" * 576)
    package = Library(tmp_path / "models").import_path(damaged, "damaged")
    engine = make_engine(replace(plan, package=package))
    await engine.start()
    await until(lambda: engine.status.state is EngineState.FAILED)
    assert engine.status.reason == (
        "The engine ended with exit status 3: the weights hold values that are not numbers."
    )


async def test_stop_during_the_start_leaves_no_process(make_engine: MakeEngine, until: Until) -> None:
    engine = make_engine()
    starting = asyncio.ensure_future(engine.start())
    own = psutil.Process()
    before = {child.pid for child in own.children()}
    await until(lambda: bool({child.pid for child in own.children()} - before) or starting.done())
    await engine.stop()
    await asyncio.wait_for(starting, 10)  # whoever waits for the start is told
    assert engine.status.state is EngineState.STOPPED
    assert {child.pid for child in own.children()} <= before


async def test_two_engines_on_one_file_share_a_folder(make_engine: MakeEngine, session: Session) -> None:
    """The shape that a blue-green swap needs: the new one becomes ready while the old one serves."""
    blue, green = make_engine(), make_engine()
    await blue.start()
    async with session(blue.connection()) as http, http.post("/v1/chat/completions", json=LONG) as stream:
        await stream.content.readline()
        await green.start()
        assert green.status.state is EngineState.READY
        assert blue.status.state is EngineState.READY
        assert await stream.content.readline() is not None
    async with session(green.connection()) as http:
        assert "Paris" in await answer(http)


async def test_sockets_that_nobody_serves_are_removed_at_the_start(make_engine: MakeEngine, tmp_path: Path) -> None:
    folder = tmp_path / "run" / "engine"
    folder.mkdir(parents=True)
    stale = folder / "deadbeef.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(stale))
    engine = make_engine()
    await engine.start()
    assert engine.status.state is EngineState.READY
    assert not stale.exists()


_AGENT = """
import asyncio, sys
from pathlib import Path
from edge.devices.probe import probe
from edge.packages.library import Library
from edge.runtime.plan import PlanRequest, plan_engine
from edge.runtime.supervisor import SupervisedEngine
from shared import logs
from shared.clock import SystemClock

async def main():
    logs.configure()
    root = Path(sys.argv[1])
    request = PlanRequest(context_tokens=512, minimum_context_tokens=512, threads=1, threads_batch=1)
    plan = plan_engine(Library(root).show(sys.argv[2]), probe(), request)
    engine = SupervisedEngine(plan, clock=SystemClock(), run_dir=Path(sys.argv[3]))
    await engine.start()
    print(engine.status.pid, flush=True)
    await asyncio.Event().wait()

if sys.argv[4] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_the_engine_never_outlives_a_killed_agent(
    installed_model: Package, tmp_path: Path, until: Until, loop: str
) -> None:
    root = installed_model.folder.parents[2]
    agent = subprocess.Popen(
        [sys.executable, "-c", _AGENT, str(root), installed_model.name, str(tmp_path), loop],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert agent.stdout is not None
        line = await asyncio.to_thread(agent.stdout.readline)
        engine_pid = int(line)
        assert psutil.pid_exists(engine_pid)
    finally:
        agent.kill()
        agent.wait()
        if agent.stdout is not None:
            agent.stdout.close()
    await until(lambda: _ended(engine_pid))


def _ended(pid: int) -> bool:
    """Gone, or waiting to be collected by whoever adopted it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("kv_type", [KvType.Q8_0, KvType.Q4_0])
async def test_a_quantised_cache_is_what_the_engine_runs_with(
    make_engine: MakeEngine, session: Session, installed_model: Package, kv_type: KvType
) -> None:
    request = PlanRequest(context_tokens=8192, threads=1, threads_batch=1, kv_type=kv_type)
    quantised = plan_engine(installed_model, probe(), request)
    planned_bytes = quantised.capacity.kv_bytes + quantised.capacity.overhead_bytes
    assert planned_bytes < 23040 * 8192  # with 16 bits the cache alone would take more
    engine = make_engine(quantised)
    await engine.start()
    async with session(engine.connection()) as http:
        assert await answer(http)
    assert engine.status.pid is not None
    memory = psutil.Process(engine.status.pid).memory_full_info()
    assert memory.rss - memory.shared < planned_bytes


async def test_a_process_that_stands_still_is_replaced(
    plan: StaticPlan, tmp_path: Path, session: Session, until: Until
) -> None:
    """A stopped process neither ends nor closes its connections: only asking it shows that it hangs."""
    rules = LivenessRules(interval_s=0.05, answer_limit_s=0.5, misses=2)
    engine = SupervisedEngine(plan, clock=SystemClock(), run_dir=tmp_path / "run", policy=QUICK, liveness=rules)
    await engine.start()
    try:
        pid = engine.status.pid
        assert pid is not None
        async with session(engine.connection()) as http, http.post("/v1/chat/completions", json=LONG) as stream:
            await stream.content.readline()
            os.kill(pid, signal.SIGSTOP)
            with pytest.raises(aiohttp.ClientError):
                while await stream.content.readline():
                    pass
        await until(lambda: engine.status.state is EngineState.READY and engine.status.pid != pid)
        assert engine.status.reason == "The engine did not answer 2 times in a row."
        assert not psutil.pid_exists(pid)
        async with session(engine.connection()) as http:
            assert "Paris" in await answer(http)
    finally:
        await engine.stop()
