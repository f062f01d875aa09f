"""Which models Ollama's routes list, show and call running, and that none is managed over HTTP."""

from __future__ import annotations

import pytest

from edge.runtime.port import EngineState
from tests.edge.service.fakes import MODEL, FakeEngine
from tests.edge.service.harness import Running
from tests.edge.service.ollama.asking import said


async def test_models_are_listed_shown_and_running(running: Running, engine: FakeEngine) -> None:
    async with running.session.get(f"{running.url}/api/tags") as response:
        (model,) = (await response.json())["models"]
    assert (model["name"], model["model"], model["digest"]) == (f"{MODEL}:latest", f"{MODEL}:latest", "0" * 64)
    assert model["details"]["family"] == "llama"
    status, shown = await said(running, "/api/show", {"model": model["name"]})
    assert (status, shown["capabilities"]) == (200, ["completion", "tools"])
    assert shown["model_info"]["llama.context_length"] == 2048
    assert (await said(running, "/api/show", {"name": MODEL}))[0] == 200
    assert (await said(running, "/api/show", {}))[1]["param"] == "model"
    async with running.session.get(f"{running.url}/api/ps") as response:
        assert [each["name"] for each in (await response.json())["models"]] == [f"{MODEL}:latest"]
    engine.set(EngineState.RESTARTING)
    async with running.session.get(f"{running.url}/api/ps") as response:
        assert (await response.json())["models"] == []


async def test_front_ends_know_the_api(running: Running) -> None:
    async with running.session.get(running.url) as response:
        assert await response.text() == "Ollama is running"
    async with running.session.head(running.url) as response:
        assert response.status == 200
    async with running.session.get(f"{running.url}/api/version") as response:
        version = (await response.json())["version"]
    assert tuple(map(int, version.split("."))) >= (0, 6, 4)  # the least that Copilot Chat takes


@pytest.mark.parametrize("route", ["embed", "embeddings"])
async def test_embeddings_are_refused_clearly(running: Running, route: str) -> None:
    status, told = await said(running, f"/api/{route}", {"model": MODEL, "input": ["x"], "prompt": "x"})
    assert (status, told["error"]) == (400, "This model does not support embeddings.")


async def test_models_are_not_managed_over_http(running: Running) -> None:
    for method, route in (("POST", "pull"), ("DELETE", "delete"), ("POST", "create"), ("HEAD", "blobs/sha256:0")):
        async with running.session.request(method, f"{running.url}/api/{route}", json={"model": MODEL}) as response:
            assert response.status == 403
            if method != "HEAD":
                assert "isthmus pull" in (await response.json())["error"]
