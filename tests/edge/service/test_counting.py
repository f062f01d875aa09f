"""Token counts without generating, continued messages, and the clear refusal of embeddings."""

from __future__ import annotations

from typing import Any

import pytest

from tests.edge.service.fakes import MODEL, EngineServer
from tests.edge.service.harness import PARIS, Running

CHAT = [{"role": "user", "content": PARIS}]


async def _post(running: Running, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    async with running.session.post(running.url + path, json=body) as response:
        return response.status, await response.json()


@pytest.mark.parametrize(
    ("fields", "count"), [({"messages": CHAT}, len(PARIS)), ({"prompt": "abc"}, 3), ({"prompt": [5, 6, 7, 8]}, 4)]
)
async def test_a_prompt_is_counted_by_the_engine(
    running: Running, server: EngineServer, fields: dict[str, Any], count: int
) -> None:
    assert await _post(running, "/v1/tokenize", {"model": MODEL, **fields}) == (
        200,
        {"model": MODEL, "count": count, "max_model_len": 2048},
    )
    assert server.exchanges == []


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"model": MODEL}, 400, "messages"),
        ({"model": MODEL, "messages": CHAT, "prompt": "a"}, 400, "messages"),
        ({"model": MODEL, "messages": [{"role": "user"}]}, 400, "messages[0].content"),
        ({"model": MODEL, "prompt": [49152]}, 400, "prompt"),
        ({"model": "other", "prompt": "a"}, 404, "model"),
    ],
)
async def test_what_cannot_be_counted_is_refused(
    running: Running, body: dict[str, Any], status: int, param: str
) -> None:
    got, answer = await _post(running, "/v1/tokenize", body)
    assert (got, answer["error"]["param"]) == (status, param)


async def test_embeddings_are_refused_in_words(running: Running) -> None:
    status, answer = await _post(running, "/v1/embeddings", {"model": MODEL, "input": "a"})
    assert (status, answer["error"]["code"]) == (400, "unsupported_model")
    assert (await _post(running, "/v1/embeddings", {"model": MODEL}))[1]["error"]["param"] == "input"
    assert (await _post(running, "/v1/embeddings", {"model": "other", "input": "a"}))[0] == 404
