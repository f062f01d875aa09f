"""Personal content never reaches the cloud, however the edge fails (PV-01): a real router between scripted tiers."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import pytest_asyncio
from aiohttp.test_utils import unused_port

from shared.fleet import ServedModel, ThermalLevel
from shared.testing import answers
from shared.testing.answers import Answer, End
from shared.testing.beats import Beats
from shared.testing.program import isthmus
from shared.testing.upstream import Upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")

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
TRIED = {*ANSWERS, REFUSED}
"""Faults that show only when the agent is asked; the others rule it out before."""


@dataclass(frozen=True)
class Router:
    """A running router."""

    url: str
    audit: Path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def recording() -> AsyncIterator[Upstream]:
    """The cloud that records."""
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
def cloud(recording: Upstream) -> Upstream:
    """The recording cloud with nothing recorded."""
    recording.forget()
    return recording


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def router(tmp_path_factory: pytest.TempPathFactory, recording: Upstream) -> AsyncIterator[Router]:
    """A real router process whose only cloud is the recording one."""
    port = unused_port()
    settings = {
        "router": {
            "port": port,
            "clouds": [
                {"id": "cloud", "url": recording.url, "models": [{"id": answers.MODEL, "context_tokens": 8192}]}
            ],
            "timeouts": {"connect_s": 1, "first_token_s": 1, "idle_s": 1, "answer_s": 1},
        }
    }
    home = tmp_path_factory.mktemp("router")
    with isthmus("router", "serve", home=home, settings=settings) as program:
        url = f"http://127.0.0.1:{port}"
        await asyncio.to_thread(program.wait_answer, f"{url}/healthz", 60)
        await _cloud_is_known(url)
        yield Router(url, home / "audit")


@contextlib.asynccontextmanager
async def failing_edge(router: Router, fault: str) -> AsyncIterator[Upstream]:
    """A new edge agent that the router knows and that fails in the given way."""
    answer = ANSWERS.get(fault, answers.completion)
    name = f"edge-{secrets.token_hex(4)}"  # the breaker and the pauses of an earlier one are not its own
    async with (
        Upstream(default=lambda _: answer()) as edge,
        Beats(router.url, edge.url, backend_id=name, **STATES.get(fault, {})),
    ):
        if fault == REFUSED:
            await edge.refuse()
        yield edge


async def _ask(url: str, text: str, **headers: str) -> list[tuple[int, dict[str, Any], Any]]:
    """The answers to `text`, whole and streamed."""
    found = []
    async with aiohttp.ClientSession() as http:
        for stream in (False, True):
            body = {"model": answers.MODEL, "messages": [{"role": "user", "content": text}], "stream": stream}
            async with http.post(f"{url}/v1/chat/completions", json=body, headers=headers) as response:
                raw = await response.read()
                parsed = orjson.loads(raw) if response.content_type == "application/json" else raw
                found.append((response.status, dict(response.headers), parsed))
    return found


async def _audited(router: Router, decision_id: str) -> dict[str, Any]:
    """The audit record of a decision, once it is written."""
    async with asyncio.timeout(10):
        while True:
            for file in router.audit.glob("*.jsonl"):
                for line in file.read_bytes().splitlines():
                    if decision_id.encode() in line and line.endswith(b"}"):
                        return orjson.loads(line)
            await asyncio.sleep(0.02)


async def _cloud_is_known(url: str) -> None:
    async with aiohttp.ClientSession() as http, asyncio.timeout(20):
        while True:
            async with http.get(f"{url}/fleet/v1/backends") as response:
                if any(b["zone"] == "cloud" and b["state"] == "ready" for b in (await response.json())["backends"]):
                    return
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("route", [None, "cloud"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_pv_01_no_edge_failure_opens_a_connection_to_the_cloud(
    router: Router, cloud: Upstream, fault: str, route: str | None
) -> None:
    async with failing_edge(router, fault):
        found = await _ask(router.url, CARD, **({"x-isthmus-route": route} if route else {}))
    assert [(status, body["error"]["code"]) for status, _, body in found] == [(503, "privacy_unavailable")] * 2
    told = "x-should-retry" if route == "cloud" else "Retry-After"
    assert all({"x-should-retry", "Retry-After"} & headers.keys() == {told} for _, headers, _ in found)
    assert all(headers["x-isthmus-class"] == "personal" for _, headers, _ in found)
    echoed = str(found).replace(" ", "")
    assert "4111111111" not in echoed, "the matched value is not echoed"
    records = [await _audited(router, headers["x-isthmus-decision-id"]) for _, headers, _ in found]
    for record in records:
        assert (record["class"], record["decision"]["action"]) == ("personal", "edge_only")
        assert (record["status"], record["code"]) == (503, "privacy_unavailable")
        assert {"backend": "cloud", "zone": "cloud", "reason": "privacy"} in record["decision"]["rejected"]
        assert {attempt["tier"] for attempt in record["attempts"]} <= {"edge"}
    # The first request meets the fault; by the second one the router may know already and not ask.
    assert bool(records[0]["attempts"]) == (route is None and fault in TRIED)
    assert cloud.exchanges == []
    async with asyncio.timeout(10):  # a poll of the capacity that has just connected says next what it is
        while cloud.inference_connections:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("fault", ["500", "thermal critical", REFUSED])
async def test_the_same_failures_send_public_content_to_the_recording_cloud(
    router: Router, cloud: Upstream, fault: str
) -> None:
    async with failing_edge(router, fault):
        found = await _ask(router.url, PUBLIC)
    assert [status for status, _, _ in found] == [200, 200]
    assert {headers["x-isthmus-tier"] for _, headers, _ in found} == {"cloud"}
    assert len(cloud.exchanges) == 2
    assert cloud.inference_connections, "what would be seen is seen"
