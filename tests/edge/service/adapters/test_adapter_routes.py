"""Adapters over HTTP, on an agent with a scripted engine: names, admin routes and their key, what the engine gets."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from edge.packages.package import Package
from shared.keys import generate, hashed
from tests.edge.adapter_files import write_adapter
from tests.edge.service.fakes import FACTS, MODEL, EngineServer, FakeEngine
from tests.edge.service.harness import Running, running_agent, until

ROUTE = "/edge/v1/adapters"


@pytest.fixture
async def agent(server: EngineServer, installed_model: Package, tmp_path: Path) -> AsyncIterator[Running]:
    """An agent that serves the default model, with nothing registered."""
    engine = FakeEngine(server, replace(FACTS, digest=installed_model.digest))
    models = str(installed_model.folder.parent.parent.parent)
    settings = {"dir": str(tmp_path / "adapters"), "rank_limit": 16, "limit": 4 << 20, "count": 2}
    async with running_agent(engine, models_dir=models, adapters=settings) as running:
        server.exchanges.clear()
        yield running


async def call(running: Running, method: str, path: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    async with running.session.request(method, running.url + path, **fields) as response:
        return response.status, await response.json()


async def register(running: Running, name: str, path: Path, query: str = "") -> tuple[int, dict[str, Any]]:
    return await call(running, "PUT", f"{ROUTE}/{MODEL}:{name}{query}", data=io.BytesIO(path.read_bytes()))


async def test_from_registration_to_the_end(agent: Running, server: EngineServer, tmp_path: Path) -> None:
    path = write_adapter(tmp_path / "a.gguf", layers=2)
    status, made = await register(agent, "a", path)
    assert (status, made["name"], made["rank"], made["loaded"]) == (201, f"{MODEL}:a", 8, False)
    async with agent.chat(model=f"{MODEL}:a") as response:
        assert (await response.json())["model"] == f"{MODEL}:a"
    assert server.exchanges[-1].body["lora"] == [{"id": 0, "scale": 1.0}]
    assert server.exchanges[-1].body["cache_prompt"] is False
    async with agent.chat(lora={"name": "a", "scale": 0.5}, stream=True) as response:
        assert f'"model":"{MODEL}"'.encode() in await response.read()
    assert server.exchanges[-1].body["lora"] == [{"id": 0, "scale": 0.5}]
    for none in ({}, {"lora": []}, {"lora": [{"name": "a", "scale": 0}]}):
        async with agent.chat(**none) as response:
            assert response.status == 200
        assert server.exchanges[-1].body["lora"] == [{"id": 0, "scale": 0.0}]
        assert "cache_prompt" not in server.exchanges[-1].body
    assert (await call(agent, "POST", f"{ROUTE}/{MODEL}:a/pin"))[1]["pinned"] is True
    assert (await call(agent, "POST", f"{ROUTE}/{MODEL}:a/unload"))[1]["error"]["code"] == "adapter_pinned"
    assert (await call(agent, "POST", f"{ROUTE}/{MODEL}:a/unpin"))[1]["pinned"] is False
    assert (await call(agent, "POST", f"{ROUTE}/{MODEL}:a/unload"))[1]["loaded"] is False
    assert (await call(agent, "POST", f"{ROUTE}/{MODEL}:a/load"))[1]["loaded"] is True
    _, listing = await call(agent, "GET", ROUTE)
    assert [each["name"] for each in listing["adapters"]] == [f"{MODEL}:a"]


async def test_models_and_the_fleet_see_adapters(agent: Running, tmp_path: Path) -> None:
    _, made = await register(agent, "a", write_adapter(tmp_path / "a.gguf", layers=2))
    _, models = await call(agent, "GET", "/v1/models")
    assert [(model["id"], model["digest"]) for model in models["data"]][1:] == [(f"{MODEL}:a", made["digest"])]
    assert models["data"][1]["parent"] == MODEL
    assert (await call(agent, "GET", f"/v1/models/{MODEL}:a"))[0] == 200
    _, status = await call(agent, "GET", "/edge/v1/status")
    assert [(model["model_id"], model["context_tokens"]) for model in status["models"]] == [
        (MODEL, 2048),
        (f"{MODEL}:a", 2048),
    ]


async def test_an_adapter_is_a_tag_of_its_model_in_ollamas_api(
    agent: Running, server: EngineServer, tmp_path: Path
) -> None:
    _, made = await register(agent, "a", write_adapter(tmp_path / "a.gguf", layers=2))
    _, tags = await call(agent, "GET", "/api/tags")
    assert [model["name"] for model in tags["models"]] == [f"{MODEL}:latest", f"{MODEL}:a"]
    adapter = tags["models"][1]
    assert (adapter["digest"], adapter["size"]) == (made["digest"].removeprefix("sha256:"), made["size_bytes"])
    _, shown = await call(agent, "POST", "/api/show", json={"model": f"{MODEL}:a"})
    assert shown["details"]["parent_model"] == adapter["details"]["parent_model"] == f"{MODEL}:latest"
    body = {"model": f"{MODEL}:a", "prompt": "hello", "stream": False}
    status, told = await call(agent, "POST", "/api/generate", json=body)
    assert (status, told["model"]) == (200, f"{MODEL}:a")
    assert server.exchanges[-1].body["lora"] == [{"id": 0, "scale": 1.0}]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": f"{MODEL}:zz"}, "model"),
        ({"model": f"{MODEL}:"}, "model"),
        ({"model": f"{MODEL}:../a"}, "model"),
        ({"model": "other:a"}, "model"),
        ({"lora": "zz"}, "lora"),
        ({"lora": [{"name": "zz"}]}, "lora"),
    ],
)
async def test_an_unknown_adapter_is_a_404(agent: Running, server: EngineServer, fields: Any, param: str) -> None:
    for stream in (False, True):
        async with agent.chat(stream=stream, **fields) as response:
            assert response.status == 404
            assert (await response.json())["error"]["param"] == param
    assert server.exchanges == []


async def test_one_adapter_twice_or_two_ways_is_a_400(agent: Running, tmp_path: Path) -> None:
    await register(agent, "a", write_adapter(tmp_path / "a.gguf", layers=2))
    for fields in ({"lora": ["a", f"{MODEL}:a"]}, {"model": f"{MODEL}:a", "lora": "a"}):
        async with agent.chat(**fields) as response:
            assert response.status == 400
            assert (await response.json())["error"]["param"] == "lora"


async def test_lr_05_what_is_wrong_with_a_file_is_a_400(agent: Running, tmp_path: Path) -> None:
    """LR-05 and its kind: nothing is listed, nothing is loaded."""
    good = write_adapter(tmp_path / "good.gguf", layers=2)
    big = write_adapter(tmp_path / "big.gguf", layers=2, rank=64)
    broken, empty = tmp_path / "broken.gguf", tmp_path / "empty.gguf"
    broken.write_bytes(good.read_bytes()[:-1])
    empty.write_bytes(b"")
    large = tmp_path / "large.gguf"
    large.write_bytes(bytes(5 << 20))
    outcomes = [
        await register(agent, "x", big),
        await register(agent, "x", broken),
        await register(agent, "x", empty),
        await register(agent, "x", large),
        await register(agent, "x", good, "?base_digest=sha256:" + "0" * 64),
        await register(agent, "..%2Fx", good),
    ]
    assert [(status, body["error"]["code"]) for status, body in outcomes] == [
        (400, "rank_too_high"),
        (400, "model_corrupt"),
        (400, "model_corrupt"),
        (413, "payload_too_large"),
        (400, "base_mismatch"),
        (400, "invalid_request"),
    ]
    assert (await call(agent, "GET", ROUTE))[1]["adapters"] == []
    assert (await call(agent, "POST", f"{ROUTE}/{MODEL}:x/load"))[0] == 404
    assert (await call(agent, "POST", f"{ROUTE}/other:x/load"))[0] == 404


async def test_a_heartbeat_has_room_for_however_many_there_are(agent: Running, tmp_path: Path) -> None:
    await register(agent, "a", write_adapter(tmp_path / "a.gguf", layers=2))
    registry = agent.agent.adapters._registry
    registry._known = registry.known * 300
    assert len((await call(agent, "GET", "/edge/v1/status"))[1]["models"]) == 256


async def test_administration_needs_its_scope(server: EngineServer, tmp_path: Path) -> None:
    """Nothing of a body is read before."""
    user, owner = generate(), generate()
    keys = [
        {"name": "user", "sha256": hashed(user)},
        {"name": "owner", "sha256": hashed(owner), "scopes": ["admin"]},
    ]
    engine = FakeEngine(server)
    async with running_agent(engine, keys=keys, adapters={"dir": str(tmp_path / "adapters")}) as running:
        for method, path in (
            ("GET", ROUTE),
            ("PUT", f"{ROUTE}/{MODEL}:a"),
            *(("POST", f"{ROUTE}/{MODEL}:a/{action}") for action in ("load", "unload", "pin", "unpin")),
        ):
            for key, expected in ((user, 403), (None, 401)):
                headers = {"Authorization": f"Bearer {key}"} if key else {}
                assert (await call(running, method, path, headers=headers))[0] == expected
        assert (await call(running, "GET", ROUTE, headers={"Authorization": f"Bearer {owner}"}))[0] == 200


async def test_the_refusal_of_a_full_line_states_place_and_wait(agent: Running, server: EngineServer) -> None:
    """EC-01: in the body and in Retry-After."""
    ended = asyncio.Event()

    async def hang(exchange: Any) -> Any:
        response = await exchange.open()
        await ended.wait()
        return response

    server.default = hang
    waiting = [asyncio.create_task(agent.chat().__aenter__()) for _ in range(5)]
    await until(lambda: agent.agent.admission.queued == 4)
    async with agent.chat() as response:
        error = orjson.loads(await response.read())["error"]
        assert response.status == 503
        assert (error["code"], error["position"]) == ("queue_full", 5)
        assert response.headers["Retry-After"] == str(error["wait_estimate_s"])
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    ended.set()
    await until(lambda: agent.agent.admission.queued == 0 and agent.agent.admission.busy == 0)


async def test_an_engine_without_adapters_knows_none(server: EngineServer, tmp_path: Path) -> None:
    engine = FakeEngine(server, replace(FACTS, features=frozenset({"logprobs"})))
    async with running_agent(engine, adapters={"dir": str(tmp_path)}) as running:
        async with running.chat(model=f"{MODEL}:a") as response:
            assert response.status == 404
        async with running.chat(lora="a") as response:
            assert response.status == 400
            assert (await response.json())["error"]["code"] == "unsupported_parameter"
        assert (await call(running, "GET", ROUTE))[1]["adapters"] == []
        async with running.chat() as response:
            assert response.status == 200
        assert "lora" not in server.exchanges[-1].body


async def test_keys_take_turns_over_http(server: EngineServer) -> None:
    """EC-01: one key's backlog does not keep another key waiting."""
    one, other = generate(), generate()
    keys = [{"name": "one", "sha256": hashed(one)}, {"name": "other", "sha256": hashed(other)}]
    order: list[str] = []
    async with running_agent(FakeEngine(server), keys=keys, queue=8) as running:

        async def ask(name: str, key: str) -> None:
            body = {"model": MODEL, "messages": [{"role": "user", "content": name}]}
            headers = {"Authorization": f"Bearer {key}"}
            status, _ = await call(running, "POST", "/v1/chat/completions", json=body, headers=headers)
            assert status == 200
            order.append(name)

        async with running.agent.admission.slot():
            asked = []
            for name, key in (("one", one),) * 4 + (("other", other),) * 2:
                asked.append(asyncio.create_task(ask(name, key)))
                await until(lambda: running.agent.admission.queued == len(asked))
        await asyncio.gather(*asked)
    assert order == ["one", "other", "one", "other", "one", "one"]
