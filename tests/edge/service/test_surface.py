"""The agent's routes: probes, models, keys, and what is not there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from edge.runtime.port import EngineState
from edge.service.relayed import RelayedMetrics
from shared import keys
from tests.edge.service.fakes import MODEL, EngineServer, FakeEngine
from tests.edge.service.harness import Running, running_agent, until

KEY, ADMIN = "isk-user", "isk-admin"
KEYS = [
    {"name": "user", "sha256": keys.hashed(KEY)},
    {"name": "reporter", "sha256": keys.hashed(ADMIN), "scopes": ["fleet:report"]},
]


async def _get(running: Running, route: str, key: str | None = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with running.session.get(running.url + route, headers=headers) as response:
        return response.status, await response.json() if response.content_type == "application/json" else None


async def test_live_before_ready(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """PB-01 kind: live at once, ready only with an engine that serves."""

    async def never_ready() -> None:
        engine.set(EngineState.STARTING)

    monkeypatch.setattr(engine, "start", never_ready)
    async with running_agent(engine, wait=False) as running:
        assert (await _get(running, "/healthz"))[0] == 200
        status, why = await _get(running, "/readyz")
        assert (status, why["reason"], why["engine"]) == (503, "not_ready", "starting")
        assert (await _get(running, "/v1/models"))[1]["data"] == []
        async with running.chat() as response:
            assert (response.status, (await response.json())["error"]["code"]) == (503, "not_ready")


async def test_a_failed_engine_says_why(running: Running, engine: FakeEngine) -> None:
    engine.set(EngineState.FAILED, reason="The model file's digest is another.", retry_after_s=60)
    status, why = await _get(running, "/readyz")
    assert (status, why["cause"]) == (503, "The model file's digest is another.")
    assert (await _get(running, "/healthz"))[0] == 200


async def test_models(running: Running) -> None:
    _, models = await _get(running, "/v1/models")
    assert [model["id"] for model in models["data"]] == [MODEL]
    assert models["data"][0]["max_model_len"] == 2048
    assert (await _get(running, f"/v1/models/{MODEL}"))[1]["id"] == MODEL
    status, error = await _get(running, "/v1/models/gpt-4o")
    assert (status, error["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("route", ["/v1/embeddings", "/v1/chat/completions"])
async def test_another_method_is_405_and_says_which_ones_there_are(running: Running, route: str) -> None:
    async with running.session.get(f"{running.url}{route}") as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")
        assert (await response.json())["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize("route", ["/slots", "/props", "/completion", "/v1/rerank"])
async def test_the_engines_own_routes_are_not_reachable(running: Running, route: str) -> None:
    status, error = await _get(running, route)
    assert (status, error["error"]["code"]) == (404, "unknown_route")


async def test_keys_guard_everything_but_the_probes(engine: FakeEngine) -> None:
    async with running_agent(engine, keys=KEYS) as running:
        for route in ("/healthz", "/readyz"):
            assert (await _get(running, route))[0] == 200
        for route in ("/metrics", "/v1/models", "/edge/v1/status", "/unknown"):
            assert (await _get(running, route))[0] == 401
        assert (await _get(running, "/metrics", KEY))[0] == 200
        assert (await _get(running, "/v1/models", KEY))[0] == 200
        assert (await _get(running, "/v1/models", ADMIN))[0] == 403
        assert (await _get(running, "/v1/models", KEY.upper()))[0] == 401


@pytest.mark.parametrize(
    ("route", "headers", "status"),
    [
        ("/v1/models", {"x-api-key": KEY}, 200),
        ("/v1/models", {"X-API-Key": KEY, "Authorization": f"Bearer {KEY}"}, 200),
        ("/v1/models", {"x-api-key": ADMIN}, 403),
        ("/v1/models", {"x-api-key": ADMIN, "Authorization": f"Bearer {KEY}"}, 401),
        ("/v1/models", {"x-api-key": "wrong-CANARY"}, 401),
        ("/v1/messages", {"x-api-key": KEY}, 404),
        ("/v1/messages", {"x-api-key": "wrong-CANARY"}, 401),
        ("/metrics", {"x-api-key": KEY}, 401),
    ],
)
async def test_au_01_a_key_may_come_as_anthropics_clients_send_it(
    engine: FakeEngine, route: str, headers: dict[str, str], status: int
) -> None:
    async with (
        running_agent(engine, keys=KEYS) as running,
        running.session.get(running.url + route, headers=headers) as response,
    ):
        assert (response.status, "CANARY" in await response.text()) == (status, False)


async def test_without_a_key_no_body_is_read(engine: FakeEngine) -> None:
    """RV-07, AU-01: 401 before the body, with the scheme that is wanted; the key is not echoed."""
    async with running_agent(engine, keys=KEYS) as running:
        before = len(engine.server.exchanges)
        async with running.chat("x" * 100_000) as response:
            assert response.status == 401
            assert response.headers["WWW-Authenticate"] == "Bearer"
        for header in ("Bearer", "Bearer ", f"Basic {KEY}", f"Bearer{KEY}", "Bearer wrong-CANARY"):
            async with running.session.get(f"{running.url}/v1/models", headers={"Authorization": header}) as response:
                assert response.status == 401
                assert "CANARY" not in await response.text()
        assert len(engine.server.exchanges) == before


async def test_metrics_do_not_grow_with_what_clients_send(running: Running) -> None:
    """MT-01"""

    async def ask(number: int) -> None:
        async with running.session.post(f"{running.url}/v1/{number}", json={}) as response:
            assert response.status == 404
        async with running.chat(model=f"model-{number}", user=f"user-{number}") as response:
            assert response.status == 404

    await ask(0)
    before = await running.metrics()
    for number in range(1, 30):
        await ask(number)
    after = await running.metrics()
    assert len(after.splitlines()) == len(before.splitlines())
    assert "model-7" not in after


async def test_the_engines_metrics_follow_the_agents_as_they_are(running: Running, server: EngineServer) -> None:
    """None while the engine says nothing, and the agent's own are there all the same."""
    assert "llamacpp" not in await running.metrics(), "this engine has none"
    server.metrics = "# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 0\n"
    text = await running.metrics()
    assert text.endswith(server.metrics)
    assert "isthmus_edge_engine_ready 1.0" in text
    server.metrics = "cut off in the mid"
    assert not (await running.metrics()).endswith(server.metrics)


async def test_an_engine_that_is_to_sleep_is_left_alone(running: Running, server: EngineServer) -> None:
    server.metrics = "llamacpp:requests_processing 0\n"
    agent = running.agent
    assert await RelayedMetrics(agent.client, agent.admission, sleeps=False).text() == server.metrics.encode()
    assert await RelayedMetrics(agent.client, agent.admission, sleeps=True).text() == b""


async def test_requests_wait_for_the_process_that_takes_the_place_of_another_one(
    running: Running, engine: FakeEngine
) -> None:
    """UP-02 kind: where memory does not hold two engines, there is none for a moment. After a crash nobody waits."""

    async def ask() -> int:
        async with running.chat() as response:
            return response.status

    engine.set(EngineState.RESTARTING, replaced=True)
    waiting = [asyncio.create_task(ask()) for _ in range(3)]
    await until(lambda: running.agent.lifecycle.in_flight == 3)
    assert not engine.server.exchanges
    engine.set(EngineState.READY, replaced=False)
    assert await asyncio.gather(*waiting) == [200, 200, 200]
    engine.set(EngineState.RESTARTING)
    assert await ask() == 503
    engine.set(EngineState.READY)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Host": "evil.example"}, "foreign_host"),
        ({"Origin": "http://evil.example"}, "foreign_origin"),
        ({"Origin": "null"}, "foreign_origin"),
    ],
)
async def test_without_keys_no_page_elsewhere_is_heard(running: Running, headers: dict[str, str], code: str) -> None:
    """A page on the web reaches loopback through its visitor's browser, under any name that it lets point there."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
    async with running.session.post(f"{running.url}/v1/chat/completions", json=body, headers=headers) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (403, code)
    async with running.session.get(f"{running.url}/v1/models", headers=headers) as response:
        assert response.status == 403
    async with running.session.get(f"{running.url}/healthz", headers=headers) as response:
        assert response.status == 200
    async with running.session.get(f"{running.url}/v1/models", headers={"Origin": "http://localhost:3000"}) as response:
        assert response.status == 200
