"""Nobody gets another's answer: many callers at once on every API, some of whom leave in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientError, ClientTimeout, web

from shared.testing.answers import MODEL
from tests.router.conftest import StartRouter, eventually

_CALLERS = 60
_LEAVES = 5
"""Every fifth caller leaves before its answer is whole."""


def _mark_of(body: bytes) -> str:
    return body.partition(b"mark-")[2][:4].decode()


def _whole(path: str, mark: str) -> dict[str, Any]:
    told = f"for mark-{mark}"
    return {
        "/v1/chat/completions": {"choices": [{"message": {"content": told}, "finish_reason": "stop"}]},
        "/v1/embeddings": {"data": [{"embedding": [0.5], "of": told}]},
        "/v1/responses": {"output": [{"type": "message", "content": [{"type": "output_text", "text": told}]}]},
        "/v1/messages": {"type": "message", "content": [{"type": "text", "text": told}]},
    }[path]


def _events(path: str, mark: str) -> list[bytes]:
    words = [f"mark-{mark} ", "and ", "no other"]
    if path == "/v1/responses":
        kinds: list[dict[str, Any]] = [{"type": "response.output_text.delta", "delta": word} for word in words]
        kinds.append({"type": "response.completed", "response": {"id": mark}})
    elif path == "/v1/messages":
        kinds = [{"type": "content_block_delta", "delta": {"type": "text_delta", "text": word}} for word in words]
        kinds += [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
    else:
        kinds = [{"id": mark, "choices": [{"index": 0, "delta": {"content": word}}]} for word in words]
        kinds.append({"id": mark, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        return [*(b"data: %b\n\n" % orjson.dumps(each) for each in kinds), b"data: [DONE]\n\n"]
    return [b"event: %b\ndata: %b\n\n" % (str(each["type"]).encode(), orjson.dumps(each)) for each in kinds]


@pytest.fixture
async def echoes() -> AsyncIterator[list[str]]:
    """Two backends that answer each caller with its own mark, in pieces and after pauses of their own."""

    async def answer(request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        mark = _mark_of(raw)
        await asyncio.sleep(int(mark) % 7 / 200)
        if not orjson.loads(raw).get("stream"):
            return web.json_response(_whole(request.path, mark))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in _events(request.path, mark):
            await response.write(event)
            await asyncio.sleep(int(mark) % 3 / 200)
        return response

    runners, urls = [], []
    for _ in range(2):
        app = web.Application()
        app.router.add_post("/{path:.*}", answer)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        runners.append(runner)
        urls.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
    yield urls
    for runner in runners:
        await runner.cleanup()


@pytest.mark.parametrize("acts", ["{}", "{hedge_ms: 1}", "{resume: true}"])
async def test_mt_01_each_caller_reads_its_own_answer_on_every_api(
    start_router: StartRouter, tmp_path: Path, echoes: list[str], acts: str
) -> None:
    """MT-01 for chat, embeddings, responses and messages, streamed and not, with hedging and resuming rules on."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: []\n" if acts == "{}" else f"rules: [{{name: act, act: {acts}}}]\n")
    router = await start_router(policy={"file": policy})
    for number, url in enumerate(echoes):
        assert await router.report(url, f"edge-{number}") == 204
    ways = [(path, stream) for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages") for stream in (0, 1)]
    ways.append(("/v1/embeddings", 0))

    async def call(number: int) -> None:
        (path, stream), mark = ways[number % len(ways)], f"{number:04d}"
        text = f"hello mark-{mark}"
        turns = {"messages": [{"role": "user", "content": text}]}
        given: dict[str, Any] = {"/v1/chat/completions": turns, "/v1/messages": {**turns, "max_tokens": 8}}.get(
            path, {"input": text}
        )
        body = {"model": MODEL, **given, **({"stream": True} if stream else {})}
        leaves = number % _LEAVES == 0
        options = {"timeout": ClientTimeout(total=0.01)} if leaves else {}
        headers = {"Content-Type": "application/json"}
        try:
            async with router.session.post(
                router.url + path, data=orjson.dumps(body), headers=headers, **options
            ) as response:
                received = await response.read()
        except (TimeoutError, ClientError):
            assert leaves
            return
        assert response.status == 200, received
        marks = {part[:4].decode() for part in received.split(b"mark-")[1:]}
        assert marks == {mark}, (path, stream)

    await asyncio.gather(*(call(number) for number in range(_CALLERS)))
    await eventually(lambda: router.in_flight() == 0)
