"""Heartbeats: what one says, when they are sent, and that a missing router disturbs nobody."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web

from edge.heat import table_of
from edge.runtime.port import EngineState, EngineStatus
from edge.service.heartbeat import Identity, Load, build
from edge.service.thermal import ladder
from edge.settings import LevelsSettings
from shared import logs
from shared.fleet import BackendState, Heartbeat, ThermalLevel, Zone
from tests.edge.service import fakes
from tests.edge.service.fakes import FACTS, EngineServer, FakeEngine, plays
from tests.edge.service.harness import Running, running_agent, until
from tests.edge.service.thermal.test_sensors import zone

TABLE = table_of(LevelsSettings())
IDENTITY = Identity("pi-1", "0123456789abcdef", "http://10.0.0.5:8081", Zone.DEVICE)


class _Router:
    """Takes heartbeats and checks each against the wire model."""

    def __init__(self) -> None:
        self.beats: list[Heartbeat] = []
        self.keys: list[str | None] = []
        self.status = 204

    async def take(self, request: web.Request) -> web.Response:
        self.beats.append(Heartbeat.model_validate_json(await request.read()))
        self.keys.append(request.headers.get("Authorization"))
        return web.Response(status=self.status)

    @property
    def last(self) -> Heartbeat:
        return self.beats[-1]


@contextlib.asynccontextmanager
async def _listening(router: _Router, port: int) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_post("/fleet/v1/heartbeats", router.take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield
    finally:
        await runner.cleanup()


@pytest.fixture
async def router(free_port: Callable[[], int]) -> AsyncIterator[tuple[_Router, str]]:
    router, port = _Router(), free_port()
    async with _listening(router, port):
        yield router, f"http://127.0.0.1:{port}"


def _load(state: EngineState = EngineState.READY, **fields: object) -> Load:
    known = {
        "engine": EngineStatus(state),
        "facts": FACTS,
        "draining": False,
        "level": ThermalLevel.NOMINAL,
        "measures": ladder.measures(ThermalLevel.NOMINAL, TABLE),
        "temperature_c": None,
        "power": None,
        "slots_total": 1,
        "slots_busy": 0,
        "queued": 0,
        "queue_limit": 4,
        "slot_wait_s": None,
        "turn_s": None,
        "prefill_tokens_per_s": None,
        "decode_tokens_per_s": None,
        "memory_available_bytes": None,
    }
    return Load(**{**known, **fields})  # type: ignore[arg-type]


def test_what_is_not_known_is_null_and_not_zero() -> None:
    """TH-01, TH-05"""
    beat = build(IDENTITY, _load(), 1)
    unknown = ("temperature_c", "on_mains", "battery_percent", "prefill_tokens_per_s", "decode_tokens_per_s")
    for name in (*unknown, "slot_wait_s", "seconds_to_throttle", "watts", "joules_per_token"):
        assert getattr(beat, name) is None
    assert f'"{name}":null' in beat.model_dump_json()


@pytest.mark.parametrize(
    ("engine", "draining", "expected"),
    [
        (EngineState.READY, False, BackendState.READY),
        (EngineState.READY, True, BackendState.DRAINING),
        (EngineState.STARTING, False, BackendState.STARTING),
        (EngineState.RESTARTING, False, BackendState.STARTING),
        (EngineState.FAILED, False, BackendState.FAILED),
        (EngineState.STOPPED, False, BackendState.DRAINING),
    ],
)
def test_states(engine: EngineState, draining: bool, expected: BackendState) -> None:
    assert build(IDENTITY, _load(engine, draining=draining), 1).state is expected


def test_heat_is_reported_with_what_it_takes_away() -> None:
    hot = ladder.measures(ThermalLevel.HOT, TABLE)
    beat = build(IDENTITY, _load(level=ThermalLevel.HOT, measures=hot, temperature_c=86.0), 1)
    assert (beat.level, beat.output_cap_tokens, beat.temperature_c) == (ThermalLevel.HOT, 256, 86.0)
    assert beat.derate_ratio < 1


async def test_beats_carry_facts_load_and_measured_rates(
    engine: FakeEngine, router: tuple[_Router, str], tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("isk-abc\n")
    settings = {"url": router[1], "key_file": str(key)}
    async with running_agent(engine, router=settings, backend_id="pi-1", advertise_url="http://pi:8081"):
        await until(lambda: bool(router[0].beats) and router[0].last.decode_tokens_per_s is not None)
        beat = router[0].last
    assert (beat.backend_id, beat.url, beat.state) == ("pi-1", "http://pi:8081", BackendState.READY)
    assert beat.models[0].model_id == fakes.MODEL
    assert beat.models[0].context_tokens == 2048
    assert (beat.slots_total, beat.queue_limit) == (1, 4)
    assert router[0].keys[-1] == "Bearer isk-abc"
    sequences = [each.sequence for each in router[0].beats]
    assert sequences == sorted(set(sequences))
    assert len({each.instance for each in router[0].beats}) == 1
    assert router[0].last.state is BackendState.DRAINING  # the farewell


async def test_a_change_is_told_at_once(engine: FakeEngine, router: tuple[_Router, str], server: EngineServer) -> None:
    async with running_agent(engine, router={"url": router[1]}) as running:
        await until(lambda: bool(router[0].beats) and router[0].last.slots_busy == 0)
        server.scripts.append(plays([fakes.progress(0)], then="hang"))
        busy = asyncio.create_task(running.chat().__aenter__())
        await until(lambda: router[0].last.slots_busy == 1)
        busy.cancel()
        await until(lambda: router[0].last.slots_busy == 0)
        engine.set(EngineState.RESTARTING)
        await until(lambda: router[0].last.state is BackendState.STARTING)
        engine.set(EngineState.READY)
        draining = asyncio.create_task(running.agent.lifecycle.drain(5))
        await until(lambda: router[0].last.state is BackendState.DRAINING)
        await draining


async def test_heat_in_the_tree_is_heat_in_the_heartbeat_and_in_admission(
    engine: FakeEngine, router: tuple[_Router, str], tmp_path: Path
) -> None:
    """The demo's way: a file in a second tree; critical refuses with its own code, cool admits again."""
    tree = tmp_path / "sensors"
    zone(tree, "50000")
    thermal = {"roots": [str(tmp_path / "absent"), str(tree)], "dwell_s": 0.2, "interval_s": 0.05}
    async with running_agent(engine, router={"url": router[1]}, thermal=thermal) as running:
        await until(lambda: bool(router[0].beats) and router[0].last.level is ThermalLevel.NOMINAL)
        zone(tree, "97000")
        await until(lambda: router[0].last.level is ThermalLevel.CRITICAL)
        assert router[0].last.temperature_c == 97.0
        async with running.chat() as response:
            assert response.status == 503
            assert response.headers["Retry-After"]
            assert (await response.json())["error"]["code"] == "thermal_critical"
        async with running.session.get(f"{running.url}/readyz") as response:
            assert (response.status, (await response.json())["reason"]) == (503, "thermal_critical")
        zone(tree, "50000")
        await until(lambda: router[0].last.level is ThermalLevel.NOMINAL)
        async with running.chat() as response:
            assert response.status == 200


async def test_a_missing_router_is_two_log_lines_and_no_trouble(
    engine: FakeEngine, free_port: Callable[[], int]
) -> None:
    sink = io.StringIO()
    logs.configure(stream=sink)
    router, port = _Router(), free_port()
    try:
        async with running_agent(engine, router={"url": f"http://127.0.0.1:{port}"}) as running:
            await until(lambda: _outcome(running) == "unreachable")
            async with running.chat() as response:
                assert response.status == 200
            async with _listening(router, port):
                await until(lambda: _outcome(running) == "accepted")
                router.status = 409
                await until(lambda: _outcome(running) == "out_of_order")
                router.status = 204
                await until(lambda: _outcome(running) == "accepted")
                farewell = len(router.beats)
            assert farewell
    finally:
        logs.configure()
    lines = [line for line in sink.getvalue().splitlines() if "router_reports" in line]
    assert len(lines) == 5  # unreachable, accepted, out of order, accepted, unreachable (the farewell)


def _outcome(running: Running) -> str | None:
    assert running.agent.heartbeat is not None
    return running.agent.heartbeat.outcome
