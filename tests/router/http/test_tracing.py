"""Traces of the router, as a collector gets them: one trace from the client to the backend, and none of its text."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from shared.fleet import ServedModel
from shared.testing import answers
from shared.testing.answers import MODEL
from shared.testing.upstream import Upstream
from tests.router.conftest import PERSONAL_TEXT, StartRouter, eventually
from tests.router.leaks.canaries import PLACES

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from shared.testing.collector import Collector, Seen

REQUEST = "POST /v1/chat/completions"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with Collector() as collector:
        yield collector


def _tracing(collector: Collector, **more: Any) -> dict[str, Any]:
    return {"endpoint": collector.url, "interval_s": 0.02, **more}


async def _trace(collector: Collector, count: int = 1) -> list[Seen]:
    """All spans, once `count` requests have ended."""
    await eventually(lambda: len([s for s in collector.spans if s.kind == "server"]) >= count)
    return collector.spans


def _one(spans: list[Seen], name: str) -> Seen:
    (span,) = [each for each in spans if each.name == name]
    return span


async def test_one_trace_from_the_client_to_the_backend(
    start_router: StartRouter, edge: Upstream, collector: Collector
) -> None:
    router = await start_router(tracing=_tracing(collector))
    await router.report(edge)
    async with router.ask(headers={**GIVEN, "tracestate": "vendor=a:1", "baggage": "k=v"}, stream=True) as response:
        await response.read()
        assert response.headers["x-isthmus-trace-id"] == TRACE
    spans = await _trace(collector)
    request, attempt = _one(spans, REQUEST), _one(spans, f"chat {MODEL}")
    assert {span.trace_id for span in spans} == {TRACE} and {span.service for span in spans} == {"isthmus-router"}
    assert (request.parent_id, request.kind, request.failed) == (PARENT, "server", False)
    for name in ("classify", "decide", f"chat {MODEL}"):
        assert _one(spans, name).parent_id == request.span_id
    assert attempt.kind == "client"
    sent = edge.exchanges[0].headers
    assert sent["traceparent"] == f"00-{TRACE}-{attempt.span_id}-01"
    assert (sent["tracestate"], sent["baggage"]) == ("vendor=a:1", "k=v")
    facts = request.facts
    assert facts["http.response.status_code"] == 200 and facts["isthmus.outcome"] == "ok"
    assert (facts["gen_ai.operation.name"], facts["gen_ai.request.model"]) == ("chat", MODEL)
    assert (facts["isthmus.tier"], facts["isthmus.backend_id"]) == ("edge", "edge-1")
    assert attempt.facts["server.address"] == "127.0.0.1" and attempt.facts["isthmus.attempt.kind"] == "first"
    assert attempt.facts["gen_ai.response.time_to_first_chunk"] >= 0
    assert _one(spans, "decide").facts["isthmus.reason"] == facts["isthmus.reason"]
    [record] = await router.records(1)
    assert record["trace_id"] == TRACE and record["decision_id"] == facts["isthmus.decision_id"]


async def test_the_cloud_gets_the_span_of_the_attempt_and_no_text_of_the_client(
    start_router: StartRouter, cloud: Upstream, collector: Collector
) -> None:
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], tracing=_tracing(collector))
    async with router.ask(headers={**GIVEN, "tracestate": "canary=canary", "baggage": "user=canary"}) as response:
        assert response.headers["x-isthmus-tier"] == "cloud"
    spans = await _trace(collector)
    sent = cloud.exchanges[0].headers
    assert sent["traceparent"] == f"00-{TRACE}-{_one(spans, f'chat {MODEL}').span_id}-01"
    assert "tracestate" not in sent and "baggage" not in sent
    assert b"canary" not in b"".join(collector.raw)


async def test_settings_let_tracestate_go_to_clouds(
    start_router: StartRouter, cloud: Upstream, collector: Collector
) -> None:
    tracing = _tracing(collector, riders_to_clouds=True)
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], tracing=tracing)
    async with router.ask(headers={**GIVEN, "tracestate": "vendor=1"}) as response:
        assert response.status == 200
    await _trace(collector)
    assert cloud.exchanges[0].headers["tracestate"] == "vendor=1"


@pytest.mark.parametrize(
    "traceparent",
    [
        "00-" + TRACE,
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}x-{PARENT}-01",
        "4111 1111 1111 1111",
        "",
    ],
)
async def test_a_broken_traceparent_begins_a_new_trace(
    start_router: StartRouter, edge: Upstream, collector: Collector, traceparent: str
) -> None:
    router = await start_router(tracing=_tracing(collector))
    await router.report(edge)
    async with router.ask(headers={"traceparent": traceparent, "tracestate": "a=1"}) as response:
        assert response.status == 200
    request = _one(await _trace(collector), REQUEST)
    assert request.parent_id == "" and request.trace_id != TRACE
    assert "tracestate" not in edge.exchanges[0].headers


async def test_a_huge_tracestate_is_left_out_and_the_trace_goes_on(
    start_router: StartRouter, edge: Upstream, collector: Collector
) -> None:
    router = await start_router(tracing=_tracing(collector))
    await router.report(edge)
    for state in ("a=" + "x" * 250 + ",b=" + "y" * 250 + ",c=" + "z" * 250, "a=" + "x" * 7000, "\xe9=1", "a=1,a=2"):
        async with router.ask(headers={**GIVEN, "tracestate": state}) as response:
            assert response.status == 200
    assert {span.trace_id for span in await _trace(collector, 4)} == {TRACE}
    assert not any("tracestate" in exchange.headers for exchange in edge.exchanges)
    async with router.ask(headers={**GIVEN, "tracestate": "a=" + "canary" * 2000}) as response:
        assert response.status == 400 and b"canary" not in await response.read()


async def test_without_a_collector_a_trace_passes_through(start_router: StartRouter, edge: Upstream) -> None:
    router = await start_router()
    await router.report(edge)
    async with router.ask(headers={**GIVEN, "tracestate": "vendor=1"}) as response:
        assert response.headers["x-isthmus-trace-id"] == TRACE
    async with router.ask() as response:
        assert "x-isthmus-trace-id" not in response.headers
    first, second = edge.exchanges
    assert (first.headers["traceparent"], first.headers["tracestate"]) == (GIVEN["traceparent"], "vendor=1")
    assert "traceparent" not in second.headers
    assert [record["trace_id"] for record in await router.records(2)] == [TRACE, None]


@pytest.mark.parametrize("riders", [False, True])
async def test_without_a_collector_the_ids_of_a_caller_reach_no_cloud_unless_told(
    start_router: StartRouter, cloud: Upstream, riders: bool
) -> None:
    """A trace in which this router has no span is text of the caller's that no scanner saw."""
    tracing = {"riders_to_clouds": riders}
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], tracing=tracing)
    card = "4111111111111111"
    given = {"traceparent": f"00-{card * 2}-{card}-01", "tracestate": "vendor=1", "baggage": "user=7"}
    async with router.ask(headers=given) as response:
        assert response.status == 200 and response.headers["x-isthmus-trace-id"] == card * 2
    [exchange] = cloud.exchanges
    sent = {name: exchange.headers[name] for name in given if name in exchange.headers}
    assert sent == (given if riders else {})


async def test_a_trace_that_is_not_recorded_still_goes_on_to_clouds(
    start_router: StartRouter, cloud: Upstream, collector: Collector
) -> None:
    """With tracing on the span of ours stands in it, whether anyone keeps it or not."""
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], tracing=_tracing(collector))
    async with router.ask(headers={"traceparent": f"00-{TRACE}-{PARENT}-00"}) as response:
        assert response.status == 200
    _, trace_id, span_id, flags = cloud.exchanges[0].headers["traceparent"].split("-")
    assert (trace_id, flags) == (TRACE, "00") and span_id != PARENT


async def test_a_client_that_does_not_record_is_followed(
    start_router: StartRouter, edge: Upstream, collector: Collector
) -> None:
    router = await start_router(tracing=_tracing(collector))
    await router.report(edge)
    async with router.ask(headers={"traceparent": f"00-{TRACE}-{PARENT}-00"}) as response:
        assert response.status == 200
    async with router.ask(headers=GIVEN) as response:
        assert response.status == 200
    await _trace(collector)
    assert len(collector.named(REQUEST)) == 1
    version, trace_id, span_id, flags = edge.exchanges[0].headers["traceparent"].split("-")
    assert (version, trace_id, flags) == ("00", TRACE, "00") and span_id != PARENT


async def test_no_new_trace_is_recorded_at_ratio_zero(
    start_router: StartRouter, edge: Upstream, collector: Collector
) -> None:
    router = await start_router(tracing=_tracing(collector, sample_ratio=0))
    await router.report(edge)
    for headers in ({}, {}, GIVEN):
        async with router.ask(headers=headers) as response:
            assert response.status == 200
    assert {span.trace_id for span in await _trace(collector)} == {TRACE}


async def test_attempts_say_why_they_were_made(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, collector: Collector
) -> None:
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], tracing=_tracing(collector))
    edge.default = lambda exchange: answers.failure(500)
    await router.report(edge)
    async with router.ask(headers=GIVEN) as response:
        assert response.status == 200
    spans = await _trace(collector)
    first, second = sorted(collector.named(f"chat {MODEL}"), key=lambda s: s.facts["isthmus.attempt.number"])
    assert (first.facts["isthmus.attempt.kind"], first.failed, first.facts["error.type"]) == ("first", True, "failed")
    assert first.facts["http.response.status_code"] == 500
    assert (second.facts["isthmus.attempt.kind"], second.failed) == ("retry", False)
    assert not _one(spans, REQUEST).failed and _one(spans, REQUEST).facts["isthmus.attempts"] == 2
    [record] = await router.records(1)
    assert [attempt["kind"] for attempt in record["attempts"]] == ["first", "retry"]


async def test_a_hedge_and_the_one_that_lost_are_marked(
    start_router: StartRouter, tmp_path: Path, edge: Upstream, cloud: Upstream, collector: Collector
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: [{name: hedge, act: {hedge_ms: 50}}]\n")
    clouds = [{"id": "cloud-1", "url": cloud.url}]
    router = await start_router(clouds=clouds, policy={"file": policy}, tracing=_tracing(collector))
    await router.report(edge)
    edge.script(answers.silence(headers_sent=True))
    cloud.script(answers.stream("Pa", "ris"))
    async with router.ask(stream=True) as response:
        await response.read()
    await _trace(collector)
    first, second = sorted(collector.named(f"chat {MODEL}"), key=lambda s: s.facts["isthmus.attempt.number"])
    assert (first.facts["isthmus.outcome"], first.failed) == ("hedge_lost", False)
    assert (second.facts["isthmus.attempt.kind"], second.facts["isthmus.outcome"]) == ("hedge", "ok")
    assert _one(collector.spans, "decide").facts["isthmus.rule"] == "hedge"


async def test_a_stream_that_goes_on_elsewhere_is_one_trace(
    start_router: StartRouter, tmp_path: Path, edge: Upstream, collector: Collector
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: [{name: resume, act: {resume: true}}]\n")
    models = (
        ServedModel(model_id=MODEL, context_tokens=2048, digest="sha256:" + "a" * 64, features=("continuation",)),
    )
    async with Upstream() as second:
        router = await start_router(policy={"file": policy}, tracing=_tracing(collector))
        await router.report(edge, "edge-1", models=models, decode_tokens_per_s=100.0, prefill_tokens_per_s=900.0)
        await router.report(second, "edge-2", models=models, decode_tokens_per_s=90.0, prefill_tokens_per_s=800.0)
        edge.script(answers.broken_stream("Paris ", "is "))
        second.script(answers.stream("it."))
        async with router.ask(stream=True, max_tokens=20, headers=GIVEN) as response:
            assert b"resumed" in await response.read()
        await _trace(collector)
        kinds = [(s.facts["isthmus.attempt.kind"], s.failed) for s in collector.named(f"chat {MODEL}")]
        assert sorted(kinds) == [("first", True), ("resume", False)]
        assert len(collector.named("classify")) == len(collector.named("decide")) == 2
        assert {span.trace_id for span in collector.spans} == {TRACE}
        assert second.exchanges[0].headers["traceparent"].startswith(f"00-{TRACE}-")
        assert _one(collector.spans, REQUEST).facts["isthmus.resumed"] == 1


@pytest.mark.parametrize(
    ("body", "status", "failed"),
    [
        (b'{"model": "m", "messages": 1}', 400, False),
        (b"{", 400, False),
        (json.dumps({"model": "nobody", "messages": [{"role": "user", "content": "x"}]}).encode(), 404, False),
        (json.dumps({"model": MODEL, "messages": [{"role": "user", "content": PERSONAL_TEXT}]}).encode(), 503, True),
    ],
)
async def test_refusals_have_a_status_that_says_whose_fault_it_was(
    start_router: StartRouter, cloud: Upstream, collector: Collector, body: bytes, status: int, failed: bool
) -> None:
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], tracing=_tracing(collector))
    async with router.send(body) as response:
        assert response.status == status
    request = _one(await _trace(collector), REQUEST)
    assert (request.facts["http.response.status_code"], request.failed) == (status, failed)
    assert request.facts["isthmus.code"] and b"nobody" not in b"".join(collector.raw)


async def test_a_cut_stream_and_a_client_that_leaves_end_differently(
    start_router: StartRouter, edge: Upstream, collector: Collector
) -> None:
    router = await start_router(tracing=_tracing(collector))
    await router.report(edge)
    edge.default = lambda exchange: answers.broken_stream("a")
    async with router.ask(stream=True) as response:
        await response.read()
    cut = _one(await _trace(collector), REQUEST)
    assert (cut.facts["isthmus.outcome"], cut.failed) == ("broken", True)
    edge.default = lambda exchange: answers.stream("a", "b", "c", gap_s=5)
    async with router.ask(stream=True) as response:
        await response.content.readany()
        response.close()
    await _trace(collector, 2)
    left = collector.named(REQUEST)[-1]
    assert (left.facts["isthmus.outcome"], left.failed) == ("client_left", False)


async def test_no_text_of_a_request_reaches_the_collector(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, collector: Collector
) -> None:
    router = await start_router(
        clouds=[{"id": "cloud-1", "url": cloud.url}], tracing=_tracing(collector), aliases={"canary-alias": MODEL}
    )
    await router.report(edge)
    headers = {
        "tracestate": "canary=canary",
        "baggage": "user=canary",
        "x-request-id": "canary-request",
        "x-session-id": "canary-session",
        "User-Agent": "canary",
        "Cookie": "canary=canary",
        "Authorization": "Bearer canary",
        "Referer": "http://canary/",
        **GIVEN,
    }
    bodies = [{"model": MODEL, **place("canary@example.com")} for place in PLACES.values()]
    bodies += [{"model": name, **PLACES["user"]("x")} for name in ("canary", "canary-alias", "canary\n")]
    paths = ["/v1/completions" if "prompt" in body else "/v1/chat/completions" for body in bodies]
    for body, path in zip(bodies, paths, strict=True):
        async with router.send(orjson.dumps(body), path=path + "?q=canary", headers=headers) as response:
            await response.read()
    async with router.send(b'{"canary"', headers=headers) as response:
        assert response.status == 400
    await _trace(collector, len(bodies) + 1)
    assert len(collector.spans) > 3 * len(PLACES)
    assert b"canary" not in b"".join(collector.raw).lower()
