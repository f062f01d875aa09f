"""Adapters in the supervised engine: kept over crashes and steps, given up when they are what is wrong."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from edge.devices.probe import probe
from edge.memory.capacity import loaded_bytes
from edge.packages.adapters.adapter import ADAPTER_FILE, Adapter, AdapterName
from edge.packages.adapters.store import AdapterStore, Registration
from edge.packages.package import Package
from edge.packages.staging import Incoming
from edge.runtime.plan import PlanRequest, plan_engine
from edge.runtime.port import AppliedAdapter, EngineConnection, EngineState
from edge.runtime.supervisor import SupervisedEngine
from shared.errors import AdapterRejected, NotReady
from tests.edge.adapter_files import write_adapter

pytestmark = pytest.mark.engine

MakeEngine = Callable[..., SupervisedEngine]
Session = Callable[..., aiohttp.ClientSession]
Until = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture
def register(installed_model: Package, tmp_path: Path) -> Callable[[str], Adapter]:
    """A function that registers an adapter of that name."""
    store = AdapterStore(tmp_path / "adapters")

    def run(name: str) -> Adapter:
        path = write_adapter(tmp_path / f"{name}.gguf", seed=ord(name))
        incoming = Incoming(ADAPTER_FILE, path.stat().st_size, lambda: path.open("rb"))
        wanted = Registration(AdapterName(installed_model.name, name), incoming, "test", rank_limit=16)
        return store.register(wanted, installed_model)

    return run


def damage(adapter: Adapter) -> None:
    path = adapter.folder / ADAPTER_FILE
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        file.write(b"\x00\x00")


async def said(engine: SupervisedEngine, session: Session, *applied: AppliedAdapter) -> str:
    with engine.using() as connection:
        body = {
            "prompt": "The sea is",
            "n_predict": 6,
            "temperature": 0,
            "cache_prompt": False,
            "lora": connection.lora(applied),
        }
        async with session(connection) as http, http.post("/completion", json=body) as response:
            text: str = (await response.json())["content"]
            return text


async def crash(engine: SupervisedEngine, until: Until) -> None:
    restarts, pid = engine.status.restarts, engine.status.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await until(lambda: engine.status.restarts > restarts and engine.status.state is EngineState.READY)


async def test_adapters_stay_over_steps_and_crashes_whatever_their_number(
    make_engine: MakeEngine, session: Session, until: Until, register: Callable[[str], Adapter]
) -> None:
    engine, a, b = make_engine(), register("a"), register("b")
    await engine.start()
    base = await said(engine, session)
    await engine.serve_adapters((a,), overlap=True)
    with_a = await said(engine, session, AppliedAdapter(a.digest, 1.0))
    assert with_a != base
    await engine.serve_adapters((b, a), overlap=False)
    assert await said(engine, session, AppliedAdapter(a.digest, 1.0)) == with_a
    await engine.take_step(engine.steps()[1], overlap=True)
    await crash(engine, until)
    assert engine.status.facts is not None
    assert (engine.status.facts.slots, engine.status.facts.adapters) == (1, (b.digest, a.digest))
    assert await said(engine, session, AppliedAdapter(a.digest, 1.0)) == with_a
    assert await said(engine, session) == base


async def test_an_adapter_that_was_damaged_does_not_take_the_model_with_it(
    make_engine: MakeEngine, session: Session, until: Until, register: Callable[[str], Adapter]
) -> None:
    engine, a = make_engine(), register("a")
    await engine.start()
    await engine.serve_adapters((a,), overlap=True)
    damage(a)
    await crash(engine, until)
    assert engine.status.facts is not None
    assert engine.status.facts.adapters == ()
    assert await said(engine, session)
    pid = engine.status.pid
    with pytest.raises(AdapterRejected):
        await engine.serve_adapters((a,), overlap=True)
    assert engine.status.pid == pid


async def test_the_limit_in_force_counts_at_every_load(
    make_engine: MakeEngine, register: Callable[[str], Adapter]
) -> None:
    """LR-05: also for what was registered under a higher one."""
    engine, a = make_engine(), register("a")
    engine._files._rank_limit = 4
    await engine.start()
    pid = engine.status.pid
    with pytest.raises(AdapterRejected, match="rank 8; at most rank 4"):
        await engine.serve_adapters((a,), overlap=True)
    assert engine.status.pid == pid
    other = replace(a, manifest=a.manifest.model_copy(update={"base_digest": "sha256:" + "0" * 64}))
    with pytest.raises(AdapterRejected, match="registered for"):
        await engine.serve_adapters((other,), overlap=True)


def test_every_request_lists_every_adapter() -> None:
    """LR-01: what is left out, or an empty list, would let the engine go on from another adapter's cache."""
    connection = EngineConnection("http://engine", None, {}, adapters=("x", "y"))
    assert connection.lora(()) == [{"id": 0, "scale": 0.0}, {"id": 1, "scale": 0.0}]
    assert connection.lora((AppliedAdapter("y", 0.5),)) == [{"id": 0, "scale": 0.0}, {"id": 1, "scale": 0.5}]
    with pytest.raises(NotReady):
        connection.lora((AppliedAdapter("z", 1.0),))


def test_the_plan_keeps_room_for_adapters(installed_model: Package) -> None:
    without = plan_engine(installed_model, probe(), PlanRequest())
    room = loaded_bytes(64 << 20)
    kept = plan_engine(installed_model, probe(), PlanRequest(adapters_bytes=room))
    assert kept.capacity.adapters_bytes == room
    assert ("adapters", room) in kept.capacity.lines
    assert without.capacity.adapters_bytes == 0
    assert kept.shape(1, 512).capacity.adapters_bytes == room
