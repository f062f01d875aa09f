"""What guards every other route guards Ollama's too: the queue, heat, slots of who leaves, labels of metrics."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shared.fleet import ThermalLevel
from shared.http.names import OUTPUT_CAP_HEADER
from tests.edge.service import fakes
from tests.edge.service.fakes import MODEL, EngineServer, FakeEngine, answer_of, plays
from tests.edge.service.harness import Running, idle, running_agent, until
from tests.edge.service.ollama.asking import CHAT, post, said
from tests.edge.service.thermal.test_sensors import zone


async def test_the_queue_is_bounded_here_as_well(running: Running, server: EngineServer) -> None:
    server.default = plays([fakes.OPENING], then="hang")
    waiting = [asyncio.create_task(said(running, "/api/chat", CHAT)) for _ in range(5)]
    await until(lambda: running.agent.admission.queued == 4)
    status, told = await said(running, "/api/generate", {"model": MODEL, "prompt": "x"})
    assert (status, told["code"]) == (503, "queue_full")
    for task in waiting:
        task.cancel()
    await until(lambda: idle(running))
    assert 'isthmus_edge_requests_total{outcome="queue_full",route="/api/generate"} 1.0' in await running.metrics()


async def test_heat_caps_and_refuses_here_as_well(engine: FakeEngine, server: EngineServer, tmp_path: Path) -> None:
    zone(tmp_path, "87000")
    thermal = {
        "roots": [str(tmp_path)],
        "dwell_s": 0.2,
        "interval_s": 0.05,
        "levels": {"hot": {"output_cap_tokens": 64}},
    }
    async with running_agent(engine, thermal=thermal) as running:
        await until(lambda: running.agent.thermal.level is ThermalLevel.HOT)
        async with post(running, "/api/chat", CHAT) as response:
            assert response.headers[OUTPUT_CAP_HEADER] == "64; reason=thermal"
            await response.read()
        assert server.exchanges[-1].body["max_tokens"] == 64
        zone(tmp_path, "99000")
        await until(lambda: running.agent.thermal.level is ThermalLevel.CRITICAL)
        async with post(running, "/api/generate", {"model": MODEL, "prompt": "x"}) as response:
            assert (response.status, (await response.json())["code"]) == (503, "thermal_critical")
            assert int(response.headers["Retry-After"]) >= 1


@pytest.mark.parametrize("stream", [True, False])
async def test_who_leaves_frees_the_slot(running: Running, server: EngineServer, stream: bool) -> None:
    """SSE-03"""
    server.scripts.append(plays([*answer_of("a", "b")[:4]], then="hang"))
    request = asyncio.create_task(post(running, "/api/chat", CHAT | {"stream": stream}).__aenter__())
    await until(lambda: running.agent.admission.busy == 1 and bool(server.exchanges) and server.exchanges[0].sent == 4)
    if stream:
        (await request).close()
    else:
        request.cancel()
    await until(lambda: idle(running) and server.exchanges[0].left)
    assert (await said(running, "/api/chat", CHAT | {"stream": False}))[0] == 200


async def test_no_client_can_make_the_labels_of_metrics(running: Running) -> None:
    """MT-01"""
    for number in range(5):
        await said(running, "/api/chat", CHAT | {"model": f"model-{number}"})
    assert "model-3" not in await running.metrics()
