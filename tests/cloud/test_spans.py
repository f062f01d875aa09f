"""Traces at the cloud's ingress, without a cluster: the middleware and the watch over an answer, with a collector."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from cloud.guard import Message, Receive, Scope, Send
from cloud.spans import Traced, watched
from shared.errors import InvalidRequest, IsthmusError, StreamBroken
from shared.tracing.build import OnSpans
from shared.tracing.settings import TracingSettings

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from shared.testing.collector import Collector, Seen

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = [(b"Traceparent", f"00-{TRACE}-{PARENT}-01".encode()), (b"tracestate", b"canary=canary")]
USAGE = {"prompt_tokens": 12, "completion_tokens": 3}


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with Collector() as collector:
        yield collector


def _count() -> OnSpans:
    return lambda outcome, count: None


def _event(**fields: Any) -> bytes:
    return b"data: " + orjson.dumps(fields) + b"\n\n"


Items = Callable[[], AsyncGenerator[Any, None]]


async def _streamed() -> AsyncGenerator[Any, None]:
    yield _event(choices=[{"delta": {"content": 'canary "finish_reason":"canary"'}, "finish_reason": None}])
    yield _event(choices=[{"delta": {}, "finish_reason": "stop"}])
    yield _event(choices=[], usage=USAGE)
    yield b"data: [DONE]\n\n"


async def _whole() -> AsyncGenerator[Any, None]:
    yield SimpleNamespace(usage=SimpleNamespace(**USAGE), choices=[SimpleNamespace(finish_reason="length")])


async def _cut() -> AsyncGenerator[Any, None]:
    yield b'data: {"choices":[{"finish_reason": "broken\n\n'
    raise StreamBroken("canary")


async def _refused() -> AsyncGenerator[Any, None]:
    raise InvalidRequest("canary", param="canary")
    yield


class _Ingress:
    """Answers with `items`, as the ingress does: one item of a whole answer, all of a stream."""

    def __init__(self, items: Items, *, stream: bool) -> None:
        self._items = items
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            return
        status = 200
        items = watched(scope, self._items(), "m", stream=self._stream)
        try:
            if self._stream:
                [item async for item in items]
            else:
                await anext(items)
        except IsthmusError as error:
            status = error.status
        await send({"type": "http.response.start", "status": status, "headers": []})


async def _ask(collector: Collector, app: Any, *, path: str = "/v1/chat/completions") -> dict[str, Seen]:
    settings = TracingSettings(endpoint=collector.url, interval_s=600)
    traced = Traced(app, settings=settings, new_count=_count)
    scope: Scope = {"type": "http", "method": "POST", "path": path, "root_path": "", "headers": GIVEN}

    async def receive() -> Message:
        return {"type": "lifespan.shutdown"}

    async def send(message: Message) -> None: ...

    try:
        await traced(scope, receive, send)
    finally:
        await traced({"type": "lifespan"}, receive, send)
    assert b"canary" not in b"".join(collector.raw)
    return {span.name: span for span in collector.spans}


@pytest.mark.parametrize(("items", "stream", "reason"), [(_streamed, True, "stop"), (_whole, False, "length")])
async def test_ingress_and_engine_are_one_trace(collector: Collector, items: Items, stream: bool, reason: str) -> None:
    spans = await _ask(collector, _Ingress(items, stream=stream))
    request, work = spans["POST /v1/chat/completions"], spans["chat m"]
    assert (request.service, request.parent_id, work.parent_id) == ("isthmus-cloud", PARENT, request.span_id)
    assert {span.trace_id for span in spans.values()} == {TRACE}
    assert request.facts["http.response.status_code"] == 200
    for span in (request, work):
        assert not span.failed
        assert span.facts["gen_ai.usage.input_tokens"] == 12 and span.facts["gen_ai.usage.output_tokens"] == 3
        assert span.facts["gen_ai.response.finish_reasons"] == [reason]


@pytest.mark.parametrize(
    ("items", "failed", "code"), [(_cut, True, "stream_broken"), (_refused, False, "invalid_request")]
)
async def test_a_failure_is_told_from_a_refusal(collector: Collector, items: Items, failed: bool, code: str) -> None:
    spans = await _ask(collector, _Ingress(items, stream=True))
    request = spans["POST /v1/chat/completions"]
    assert (request.failed, request.facts["isthmus.code"]) == (failed, code)
    assert spans["chat m"].facts["error.type"] == code


async def test_a_client_that_leaves_is_no_failure(collector: Collector) -> None:
    async def leaves(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            raise asyncio.CancelledError
        await receive()

    with pytest.raises(asyncio.CancelledError):
        await _ask(collector, leaves)
    (span,) = collector.spans
    assert (span.failed, span.facts["isthmus.outcome"]) == (False, "cancelled")


async def test_other_routes_are_not_traced(collector: Collector) -> None:
    async def answers(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()

    assert await _ask(collector, answers, path="/v1/models") == {}


def test_an_answer_that_nobody_traces_is_left_alone() -> None:
    items = _whole()
    assert watched({"type": "http"}, items, "m", stream=False) is items


def test_what_the_middleware_is_made_from_travels_to_replicas() -> None:
    """Serve pickles the application; the tracer itself, with its thread, is made where it serves."""
    settings = TracingSettings(endpoint="http://127.0.0.1:4318/v1/traces")
    assert pickle.loads(pickle.dumps((Traced, settings, _count))) == (Traced, settings, _count)
