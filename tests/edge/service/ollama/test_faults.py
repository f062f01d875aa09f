"""What Ollama's routes refuse, and in whose words the refusal names the field."""

from __future__ import annotations

from typing import Any

import pytest

from tests.edge.service.fakes import MODEL, EngineServer, says
from tests.edge.service.harness import Running
from tests.edge.service.ollama.asking import CHAT, HELLO, said


@pytest.mark.parametrize("route", ["chat", "generate", "show", "embed", "embeddings"])
async def test_an_unknown_model_is_told_in_ollamas_words(running: Running, route: str) -> None:
    body = {"model": "gpt-4o:latest", "messages": HELLO, "prompt": "hello", "input": "hello"}
    for stream in (True, False):
        status, told = await said(running, f"/api/{route}", body | {"stream": stream})
        assert (status, told["error"]) == (404, "model 'gpt-4o:latest' not found")
    status, told = await said(running, f"/api/{route}", body | {"model": f"{MODEL}:no-such-adapter"})
    assert (status, told["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"", 400, "empty"),
        (b"{", 400, "not valid JSON"),
        (b"[]", 400, "must be a JSON object"),
        (b'{"model":"m","model":"m"}', 400, "repeats a key"),
        (b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}', 400, "not valid JSON"),
        (b'{"model":"m","messages":[{"role":"user","content":"a\\u0000b"}]}', 400, "NUL"),
        (b'{"model":"m","prompt":' + b"[" * 100 + b"]" * 100 + b"}", 400, "nested deeper"),
        (b'{"model":"m","options":{"temperature":1e999}}', 400, "JSON"),
        (b"\xff\xfe", 400, "UTF-8"),
        (b'{"model":"' + b"m" * 300 + b'","prompt":"x"}', 400, "model"),
        (b'{"prompt":"x"}', 400, "model: A required field is missing."),
    ],
)
@pytest.mark.parametrize("route", ["chat", "generate"])
async def test_malformed_bodies(running: Running, route: str, body: bytes, status: int, error: str) -> None:
    async with running.session.post(f"{running.url}/api/{route}", data=body) as response:
        told = await response.json()
        assert response.status == status
        assert error in told["error"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"temperature": 3}, "options.temperature: "),
        ({"top_p": 0}, "options.top_p: "),
        ({"top_k": 10**9}, "options.top_k: "),
        ({"repeat_penalty": 0}, "options.repeat_penalty: "),
        ({"presence_penalty": 5}, "options.presence_penalty: "),
        ({"stop": [""]}, "options.stop"),
        ({"mirostat": 2}, "options.mirostat: mirostat is not supported"),
        ({"typical_p": 0.5}, "options.typical_p: "),
        ({"num_ctx": 10**30}, "options.num_ctx: "),
    ],
)
async def test_faults_name_the_field_in_ollamas_words(running: Running, options: dict[str, Any], told: str) -> None:
    for route in ("chat", "generate"):
        status, answer = await said(running, f"/api/{route}", CHAT | {"prompt": "hello", "options": options})
        assert status == 400
        assert told.removesuffix(" ") in answer["error"]
        assert answer["param"].startswith("options.")


async def test_a_limit_above_the_context_is_no_demand_for_room(running: Running, server: EngineServer) -> None:
    """Front ends set num_predict far above what any context holds."""
    status, _ = await said(running, "/api/chat", CHAT | {"options": {"num_predict": 10**6}, "stream": False})
    assert status == 200
    assert server.exchanges[0].body["max_tokens"] == 10**6


async def test_a_prompt_that_does_not_fit_is_never_cut(running: Running, server: EngineServer) -> None:
    """CX-01: Ollama drops the beginning of a long conversation without a word."""
    error = {"type": "exceed_context_size_error", "n_prompt_tokens": 3000, "n_ctx": 2048, "message": "too long"}
    server.default = says(400, error)
    for route, body, param in (("chat", CHAT, "messages"), ("generate", {"model": MODEL, "prompt": "x"}, "prompt")):
        status, told = await said(running, f"/api/{route}", body | {"truncate": True})
        assert (status, told["code"], told["param"]) == (400, "context_length_exceeded", param)
        assert "3000" in told["error"]
        assert "2048" in told["error"]


async def test_unknown_routes_are_told_in_the_shape_of_their_api(running: Running) -> None:
    async with running.session.get(f"{running.url}/api/nothing") as response:
        assert (response.status, (await response.json())["error"]) == (404, "There is no such route.")
    async with running.session.get(f"{running.url}/v1/nothing") as response:
        assert (await response.json())["error"]["code"] == "unknown_route"
