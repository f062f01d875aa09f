"""Privacy through the whole router: what must stay on the edge opens no connection to the cloud, whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import openai
import orjson
import pytest

from shared.fleet import ServedModel, ThermalLevel
from shared.keys import Scope, hashed
from shared.testing import answers
from shared.testing.answers import MODEL
from shared.testing.upstream import Upstream
from tests.router.conftest import PERSONAL_TEXT, PUBLIC_TEXT, RunningRouter, StartRouter, eventually

EDGE_FAULTS = {
    "500": answers.failure(500),
    "503": answers.failure(503, "queue_full", {"Retry-After": "1"}),
    "429": answers.failure(429, "rate_limit_exceeded"),
    "timeout": answers.silence(),
    "empty": answers.empty(),
    "unknown model": answers.failure(404, "model_not_found"),
}


@pytest.fixture
async def router(start_router: StartRouter, edge: Upstream, cloud: Upstream) -> AsyncIterator[RunningRouter]:
    started = await start_router(
        clouds=[{"id": "cloud-1", "url": cloud.url}], timeouts={"first_token_s": 0.3, "answer_s": 0.3}
    )
    await started.report(edge)
    await eventually(lambda: any(b.models for b in started.router.directory.snapshot().backends if b.zone == "cloud"))
    yield started
    await asyncio.sleep(0.05)
    assert cloud.inference_connections == [], "personal text opened a connection to the cloud"


async def unavailable(router: RunningRouter, *, stream: bool = False, **headers: str) -> None:
    async with router.ask(PERSONAL_TEXT, stream=stream, headers=headers) as response:
        assert response.status == 503
        assert (await response.json())["error"]["code"] == "privacy_unavailable"
        told = "x-should-retry" if headers.get("x-isthmus-route") == "cloud" else "Retry-After"
        assert [name for name in ("x-should-retry", "Retry-After") if name in response.headers] == [told]
        assert response.headers["x-isthmus-class"] == "personal"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", EDGE_FAULTS)
async def test_failing_edge_never_widens(router: RunningRouter, edge: Upstream, fault: str, stream: bool) -> None:
    """PV-01: six of the eight ways in which an edge fails."""
    edge.script(EDGE_FAULTS[fault])
    await unavailable(router, stream=stream)
    [record] = await router.records(1)
    assert record["class"] == "personal" and record["decision"]["action"] == "edge_only"
    assert [a["tier"] for a in record["attempts"]] == ["edge"]
    assert {"backend": "cloud-1", "zone": "cloud", "reason": "privacy"} in record["decision"]["rejected"]


async def test_refused_connection_never_widens(router: RunningRouter, edge: Upstream) -> None:
    """PV-01."""
    await edge.refuse()
    await unavailable(router)
    await unavailable(router)


async def test_heat_never_widens(router: RunningRouter, edge: Upstream) -> None:
    """PV-01."""
    await router.report(edge, level=ThermalLevel.CRITICAL)
    await unavailable(router)


async def test_a_model_only_the_cloud_serves_never_widens(router: RunningRouter, edge: Upstream) -> None:
    """PV-01: the edge does not know the model."""
    await router.report(edge, models=(ServedModel(model_id="another"),))
    await unavailable(router)


async def test_asking_for_the_cloud_does_not_help(router: RunningRouter) -> None:
    """A prompt with a card number under `x-isthmus-route: cloud` goes nowhere."""
    await unavailable(router, **{"x-isthmus-route": "cloud"})


async def test_detection_changes_the_route(router: RunningRouter, edge: Upstream) -> None:
    """PV-03: edge_only is enforced, and said."""
    async with router.ask(PERSONAL_TEXT) as response:
        assert response.status == 200
        assert response.headers["x-isthmus-tier"] == "edge"
        assert response.headers["x-isthmus-class"] == "personal"
        assert response.headers["x-isthmus-reason"] == "privacy_requires_edge"
    [record] = await router.records(1)
    assert record["entities"][0]["kind"] == "card"
    assert "4111 1111" not in orjson.dumps(record).decode()


async def test_tightening_is_free(router: RunningRouter, edge: Upstream) -> None:
    edge.script(answers.failure(500))
    async with router.ask(PUBLIC_TEXT, headers={"x-isthmus-privacy": "secret"}) as response:
        assert response.status == 503
        assert response.headers["x-isthmus-class"] == "secret"


async def test_a_caller_that_guards_everything_needs_no_leave_for_a_picture(
    router: RunningRouter, edge: Upstream
) -> None:
    """What no scanner read stays unknown, and is served or not as without the header."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    answered = []
    for headers in ({}, {"x-isthmus-privacy": "secret"}):
        messages = [{"role": "user", "content": [{"type": "text", "text": "what is it?"}, picture]}]
        async with router.ask(messages=messages, headers=headers) as response:
            answered.append((response.status, response.headers["x-isthmus-class"]))
    assert answered[0] == answered[1]
    assert answered[0][0] != 403 and answered[0][1] == "unknown"


@pytest.mark.parametrize(
    "field",
    [
        b'"x": 4111111111111111e-30',
        b'"metadata": {"AKIAQWERTYUIOPASDFGH": "x"}',
        b'"prompt_token_ids": [1, 2, 3]',
        b'"user": "|Bob|4111111111111111|"',
    ],
)
async def test_fields_that_carry_more_than_they_seem_to_stay_on_the_edge(
    router: RunningRouter, edge: Upstream, field: bytes
) -> None:
    raw = b'{"model": "%s", "messages": [{"role": "user", "content": "hello"}], %s}' % (MODEL.encode(), field)
    async with router.send(raw, headers={"x-isthmus-route": "cloud"}) as response:
        assert response.status == 503
        assert response.headers["x-isthmus-class"] in ("personal", "secret", "unknown")


async def test_loosening_needs_a_key_with_the_scope(router: RunningRouter, edge: Upstream) -> None:
    async with router.ask(PERSONAL_TEXT, headers={"x-isthmus-privacy": "public"}) as response:
        assert response.status == 403
    assert not edge.exchanges


async def test_loosening_is_audited(start_router: StartRouter, cloud: Upstream) -> None:
    scopes = [Scope.INFERENCE, Scope.PRIVACY_OVERRIDE]
    keys = [
        {"name": "ops", "sha256": hashed("k-ops"), "scopes": scopes},
        {"name": "app", "sha256": hashed("k-app"), "scopes": [Scope.INFERENCE]},
    ]
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], keys=keys)
    asked = {"x-isthmus-privacy": "public", "x-isthmus-route": "cloud"}
    async with router.ask(PERSONAL_TEXT, headers={**asked, "Authorization": "Bearer k-app"}) as response:
        assert response.status == 403
    async with router.ask(PERSONAL_TEXT, headers={**asked, "Authorization": "Bearer k-ops"}) as response:
        assert response.status == 200
    denied, loosened = await router.records(2)
    assert not denied["class_loosened"] and denied["status"] == 403 and denied["class_asked"] == "public"
    assert loosened["class_loosened"] and loosened["class_found"] == "personal" and loosened["key"] == "ops"


@pytest.mark.parametrize("action", ["block", "edge_only"])
async def test_the_enforced_action_is_the_configured_one(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, action: str
) -> None:
    """PV-03: block is a 4xx without any call."""
    actions = {"public": "any", "personal": action, "secret": action, "unknown": action}
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], policy={"actions": actions})
    await router.report(edge)
    async with router.ask(PERSONAL_TEXT) as response:
        assert response.status == (403 if action == "block" else 200)
    assert len(edge.exchanges) == (0 if action == "block" else 1)
    assert not cloud.exchanges


class _Broken:
    def scan(self, texts: object, *, expired: object = None) -> object:
        raise RuntimeError("scanner fault")


async def test_a_scanner_that_fails_keeps_everything_on_the_edge(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    """PI-11: not scanned is the strictest class, and it is counted."""
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], scanner=_Broken())
    async with router.ask(PUBLIC_TEXT) as response:
        assert response.status == 503
        assert response.headers["x-isthmus-class"] == "unknown"
    await router.report(edge)
    async with router.ask(PUBLIC_TEXT) as response:
        assert response.headers["x-isthmus-tier"] == "edge"
    assert cloud.inference_connections == []
    assert router.metric("isthmus_router_scanner_errors_total", cause="error") == 2


async def test_nothing_unscanned_travels_in_headers(start_router: StartRouter, cloud: Upstream) -> None:
    """Headers are text that no scanner saw: of what the caller wrote there, nothing reaches the cloud."""
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}])
    headers = {
        "x-session-id": "bob@example.com",
        "x-request-id": "4111111111111111",
        "Cookie": "name=canary",
        "X-Forwarded-For": "canary",
        "Authorization": "Bearer client-secret",
        "User-Agent": "canary",
        "tracestate": "canary=1",
        "Accept-Language": "canary",
    }
    async with router.ask(headers=headers) as response:
        assert response.status == 200
        assert response.headers["x-request-id"] == "4111111111111111"
    [exchange] = cloud.exchanges
    sent = " ".join(exchange.headers.values())
    for leak in ("bob@", "4111111111", "canary", "client-secret"):
        assert leak not in sent
    assert exchange.headers["X-Request-Id"].startswith("dec-")


async def test_the_body_travels_byte_for_byte(start_router: StartRouter, cloud: Upstream) -> None:
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], aliases={"gpt-4o": MODEL})
    raw = b'{ "messages":[{"role":"user","content":"caf\\u00e9 \\"model\\""}],\n "top_p":0.10, "model" : "%s"}'
    async with router.send(raw % MODEL.encode()) as response:
        assert response.status == 200
    async with router.send(raw % b"gpt-4o") as response:
        assert response.status == 200
    assert [e.body for e in cloud.exchanges] == [raw % MODEL.encode()] * 2


@pytest.mark.parametrize("stream", [True, False])
async def test_a_line_that_outlasts_the_limit_is_said_at_once(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, stream: bool
) -> None:
    """Edge-only requests do not stand in a line until their time is up; what nobody measured refuses nobody."""
    limits = {} if stream else {"policy": {"whole_wait_limit_s": 30}}
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url, "models": [{"id": MODEL}]}], **limits)
    rates = {"prefill_tokens_per_s": 100.0, "decode_tokens_per_s": 10.0}
    line = {"slots_total": 1, "slots_busy": 1, "queued": 3, "queue_limit": 64}
    await router.report(edge, **rates, **line)
    async with router.ask(PERSONAL_TEXT, stream=stream) as response:
        assert response.status == 503 and response.content_type == "application/json"
        told = (await response.json())["error"]
        assert told["code"] == "privacy_unavailable" and "line" in told["message"]
        assert 60 <= int(response.headers["Retry-After"]) <= 120
        assert response.headers["x-isthmus-reason"] == "privacy_unavailable"
    async with router.ask(PERSONAL_TEXT, stream=stream, max_tokens=4) as response:
        assert response.status == 200, "of short answers the line is short"
    assert len(edge.exchanges) == 1 and not cloud.inference_connections
    refused = (await router.records(2))[0]
    assert {"backend": "edge-1", "zone": "device", "reason": "wait_too_long"} in refused["decision"]["rejected"]
    assert refused["attempts"] == []
    await router.report(edge, **line)
    async with router.ask(PERSONAL_TEXT, stream=stream) as response:
        assert response.status == 200, "nobody knows how long the line takes"


@pytest.mark.parametrize("route", ["cloud", "auto"])
async def test_a_client_is_told_not_to_come_again_where_no_wait_helps(
    router: RunningRouter, edge: Upstream, route: str
) -> None:
    """OpenAI's client sends what is refused with 503 twice more; under route `cloud` that could never help."""
    edge.script(answers.failure(503), answers.failure(503), answers.failure(503))
    async with router.ask(PERSONAL_TEXT, headers={"x-isthmus-route": route}) as response:
        assert response.status == 503
        told = response.headers.get("x-should-retry"), response.headers.get("Retry-After")
        assert told == (("false", None) if route == "cloud" else (None, "1")), "one of the two, never both"


@pytest.mark.parametrize(("route", "times"), [("cloud", 1), ("auto", 2)])
async def test_the_official_client_comes_again_only_where_that_helps(
    router: RunningRouter, edge: Upstream, route: str, times: int
) -> None:
    edge.default = lambda _: answers.failure(503)
    asked = {"model": MODEL, "messages": [{"role": "user", "content": PERSONAL_TEXT}]}
    headers = {"x-isthmus-route": route}
    async with openai.AsyncOpenAI(base_url=f"{router.url}/v1", api_key="none", max_retries=1) as client:
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(**asked, extra_headers=headers)  # type: ignore[call-overload]
    assert len(await router.records(times)) == times


async def test_who_asks_for_less_than_the_session_had_is_told_of_the_session(router: RunningRouter) -> None:
    session = {"x-session-id": "s-1"}
    async with router.ask("Hello", headers={**session, "x-isthmus-privacy": "secret"}) as response:
        assert response.status == 200
    async with router.ask(PERSONAL_TEXT, headers={**session, "x-isthmus-privacy": "personal"}) as response:
        assert response.status == 403
        assert "the class that its session has had (secret)" in (await response.json())["error"]["message"]
    async with router.ask(PERSONAL_TEXT, headers={"x-isthmus-privacy": "public"}) as response:
        assert response.status == 403
        assert "the class that was found (personal)" in (await response.json())["error"]["message"]
