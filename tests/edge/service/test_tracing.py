"""Traces of the agent: how long a request waited, what the engine did, and how it ended; none of its text."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import structlog

from shared import logs
from tests.edge.service.fakes import MODEL, FakeEngine, answer_of, plays, says
from tests.edge.service.harness import Running, received_of, running_agent, until

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from shared.testing.collector import Collector, Seen

REQUEST, ENGINE = "POST /v1/chat/completions", f"chat {MODEL}"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with Collector() as collector:
        yield collector


@pytest.fixture
async def traced(engine: FakeEngine, collector: Collector) -> AsyncIterator[Running]:
    tracing = {"endpoint": collector.url, "interval_s": 0.02}
    async with running_agent(engine, tracing=tracing, queue=1) as running:
        running.session.headers["traceparent"] = f"00-{TRACE}-{PARENT}-01"
        running.session.headers["tracestate"] = "canary=canary"
        yield running


async def _spans(collector: Collector, requests: int = 1) -> list[Seen]:
    await until(lambda: len(collector.named(REQUEST)) >= requests)
    return collector.spans


def _one(spans: list[Seen], name: str) -> Seen:
    (span,) = [each for each in spans if each.name == name]
    return span


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_admitted_and_then_the_engine_works(
    traced: Running, engine: FakeEngine, collector: Collector, stream: bool
) -> None:
    engine.server.default = plays(answer_of("canary ", "canary"))
    async with traced.chat("canary", stream=stream, user="canary") as response:
        assert response.status == 200 and b"canary" in await response.read()
        assert response.headers["x-isthmus-trace-id"] == TRACE
    spans = await _spans(collector)
    request, admission, work = (_one(spans, name) for name in (REQUEST, "admission", ENGINE))
    assert {s.trace_id for s in spans} == {TRACE} and {s.service for s in spans} == {"isthmus-edge"}
    assert (request.parent_id, admission.parent_id, work.parent_id) == (PARENT, request.span_id, request.span_id)
    assert not any(span.failed for span in spans) and request.facts["isthmus.outcome"] == "ok"
    for span in (request, work):
        facts = span.facts
        assert (facts["gen_ai.usage.input_tokens"], facts["gen_ai.usage.output_tokens"]) == (40, 6)
        assert facts["gen_ai.response.finish_reasons"] == ["stop"] and facts["gen_ai.response.model"] == MODEL
    assert b"canary" not in b"".join(collector.raw)


async def test_no_slot_and_no_place_is_a_failed_admission(
    traced: Running, engine: FakeEngine, collector: Collector
) -> None:
    engine.server.default = plays(answer_of("x")[:4], then="hang")
    held = [asyncio.create_task(_left(traced)) for _ in range(2)]
    await until(lambda: traced.agent.admission.busy == 1 and traced.agent.admission.queued == 1)
    async with traced.chat() as response:
        assert response.status == 503
    spans = await _spans(collector)
    refused = [span for span in spans if span.name == "admission" and span.failed]
    assert [span.facts["error.type"] for span in refused] == ["queue_full"]
    request = _one(spans, REQUEST)
    assert (request.failed, request.facts["isthmus.outcome"]) == (True, "queue_full")
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    await _spans(collector, 3)
    left = [span for span in collector.named(REQUEST) if span.facts["isthmus.outcome"] == "cancelled"]
    assert [span.failed for span in left] == [False, False]


async def test_ollamas_routes_are_traced_alike(traced: Running, engine: FakeEngine, collector: Collector) -> None:
    engine.server.default = plays(answer_of("x"))
    body = {"model": MODEL, "prompt": "canary", "stream": False, "raw": True}
    async with traced.session.post(f"{traced.url}/api/generate", json=body) as response:
        assert response.status == 200
    await until(lambda: bool(collector.named("POST /api/generate")))
    request, work = _one(collector.spans, "POST /api/generate"), _one(collector.spans, f"text_completion {MODEL}")
    assert work.parent_id == request.span_id and request.facts["gen_ai.usage.output_tokens"] == 6
    assert b"canary" not in b"".join(collector.raw)


async def _left(running: Running) -> None:
    async with running.chat(stream=True) as response:
        await response.read()


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_dies_fails_its_span(
    traced: Running, engine: FakeEngine, collector: Collector, stream: bool
) -> None:
    engine.server.default = plays(answer_of("a", "b")[:4], then="cut")
    async with traced.chat(stream=stream) as response:
        await received_of(response)
    spans = await _spans(collector)
    work, request = _one(spans, ENGINE), _one(spans, REQUEST)
    assert work.failed and request.failed and work.facts["error.type"] == "stream_broken"


async def test_log_lines_name_the_trace(traced: Running, engine: FakeEngine) -> None:
    engine.server.default = plays(answer_of("a", "b")[:4], then="cut")
    stream = io.StringIO()
    logs.configure(stream=stream)
    try:
        async with traced.chat(stream=True) as response:
            await received_of(response)
    finally:
        structlog.reset_defaults()
        logging.basicConfig(handlers=[logging.NullHandler()], force=True)
    [line] = [orjson.loads(line) for line in stream.getvalue().splitlines() if "answer_broken" in line]
    assert line["trace_id"] == TRACE


async def test_a_refusal_is_the_callers_fault(traced: Running, engine: FakeEngine, collector: Collector) -> None:
    engine.server.default = says(400, {"message": "canary"})
    async with traced.chat("canary") as response:
        assert response.status == 400
    spans = await _spans(collector)
    assert not _one(spans, REQUEST).failed and b"canary" not in b"".join(collector.raw)


async def test_what_became_of_spans_is_a_metric(traced: Running, collector: Collector) -> None:
    await _ask(traced)
    await _spans(collector)
    assert 'isthmus_edge_trace_spans_total{outcome="exported"} 3.0' in await traced.metrics()


async def _ask(running: Running, **fields: Any) -> None:
    async with running.chat(**fields) as response:
        assert response.status == 200
        await response.read()
