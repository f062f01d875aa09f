"""Personal content never reaches the cloud, however the edge fails (PV-01): a real router between scripted tiers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from shared.fleet import ServedModel, ThermalLevel
from shared.testing import answers
from shared.testing.answers import Answer, End
from shared.testing.beats import Beats
from shared.testing.program import isthmus
from shared.testing.upstream import Upstream

CARD = "My card is 4111 1111 1111 1111. Which city is the capital of France?"
PUBLIC = "Which city is the capital of France?"

ANSWERS: dict[str, Callable[[], Answer]] = {
    "500": lambda: answers.failure(500),
    "503": lambda: answers.failure(503, headers={"Retry-After": "1"}),
    "429": lambda: answers.failure(429, headers={"Retry-After": "1"}),
    "timeout": answers.silence,
    "timeout after the headers": lambda: answers.silence(headers_sent=True),
    "empty 200": answers.empty,
    "model unknown to the agent": lambda: answers.failure(404, "model_not_found"),
    "reset before an answer": answers.hang_up,
    "closed before an answer": lambda: answers.hang_up(End.CUT),
    "error event before content": lambda: answers.broken_stream(error=True, end=End.CLEAN),
}
"""What the edge agent answers to everything."""
STATES: dict[str, dict[str, Any]] = {
    "thermal critical": {"level": ThermalLevel.CRITICAL},
    "unknown model": {"models": (ServedModel(model_id="another-model", context_tokens=8192),)},
    "queue full": {"slots_busy": 2, "queued": 16},
}
"""What the edge agent reports of itself."""
REFUSED = "connection refused"
FAULTS = [*ANSWERS, *STATES, REFUSED]


@pytest.fixture
async def cloud() -> AsyncIterator[Upstream]:
    """The recording cloud."""
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def router(tmp_path: Path, free_port: Callable[[], int], cloud: Upstream) -> AsyncIterator[str]:
    """A real router process whose only cloud is the recording one."""
    port = free_port()
    settings = {
        "router": {
            "port": port,
            "clouds": [{"id": "cloud", "url": cloud.url, "models": [{"id": answers.MODEL, "context_tokens": 8192}]}],
            "timeouts": {"connect_s": 1, "first_token_s": 1, "idle_s": 1, "answer_s": 1},
        }
    }
    with isthmus("router", "serve", home=tmp_path, settings=settings) as program:
        await asyncio.to_thread(program.wait_answer, f"http://127.0.0.1:{port}/healthz", 60)
        yield f"http://127.0.0.1:{port}"


@contextlib.asynccontextmanager
async def failing_edge(router: str, fault: str) -> AsyncIterator[Upstream]:
    """An edge agent that the router knows and that fails in the given way."""
    answer = ANSWERS.get(fault, answers.completion)
    async with Upstream(default=lambda _: answer()) as edge, Beats(router, edge.url, **STATES.get(fault, {})):
        if fault == REFUSED:
            await edge.refuse()
        yield edge


async def _ask(router: str, text: str, **headers: str) -> list[tuple[int, dict[str, Any], Any]]:
    """The answers to `text`, whole and streamed."""
    found = []
    async with aiohttp.ClientSession() as http:
        for stream in (False, True):
            body = {"model": answers.MODEL, "messages": [{"role": "user", "content": text}], "stream": stream}
            async with http.post(f"{router}/v1/chat/completions", json=body, headers=headers) as response:
                raw = await response.read()
                parsed = orjson.loads(raw) if response.content_type == "application/json" else raw
                found.append((response.status, dict(response.headers), parsed))
    return found


async def _cloud_is_known(router: str) -> None:
    async with aiohttp.ClientSession() as http, asyncio.timeout(20):
        while True:
            async with http.get(f"{router}/fleet/v1/backends") as response:
                if any(b["zone"] == "cloud" and b["state"] == "ready" for b in (await response.json())["backends"]):
                    return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("route", [None, "cloud"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_pv_01_no_edge_failure_opens_a_connection_to_the_cloud(
    router: str, cloud: Upstream, fault: str, route: str | None
) -> None:
    await _cloud_is_known(router)
    async with failing_edge(router, fault):
        found = await _ask(router, CARD, **({"x-isthmus-route": route} if route else {}))
    assert [(status, body["error"]["code"]) for status, _, body in found] == [(503, "privacy_unavailable")] * 2
    assert all("Retry-After" in headers for _, headers, _ in found)
    assert all(headers["x-isthmus-class"] == "personal" for _, headers, _ in found)
    assert not any("4111" in str(part) for answer in found for part in answer), "the matched value is not echoed"
    assert cloud.exchanges == []
    assert cloud.inference_connections == []


@pytest.mark.parametrize("fault", ["500", "thermal critical", REFUSED])
async def test_the_same_failures_send_public_content_to_the_recording_cloud(
    router: str, cloud: Upstream, fault: str
) -> None:
    await _cloud_is_known(router)
    async with failing_edge(router, fault):
        found = await _ask(router, PUBLIC)
    assert [status for status, _, _ in found] == [200, 200]
    assert {headers["x-isthmus-tier"] for _, headers, _ in found} == {"cloud"}
    assert len(cloud.exchanges) == 2
    assert cloud.inference_connections, "what would be seen is seen"
