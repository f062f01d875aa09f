"""Traces of the cloud tier: a span for each request at the ingress, and one for the engine's work on it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import orjson
from multidict import CIMultiDict, CIMultiDictProxy

from cloud.guard import App, Message, Receive, Scope, Send, endpoint_of
from shared.errors import IsthmusError
from shared.openai.facts import Endpoint
from shared.tracing import conventions as c
from shared.tracing.build import OnSpans, build_tracer
from shared.tracing.port import NO_SPAN, Facts, Span
from shared.tracing.settings import TracingSettings
from shared.tracing.w3c import read_carried

_SPAN, _ENDPOINT = "isthmus.span", "isthmus.endpoint"
_TELLS = re.compile(rb'"(?:finish_reason": ?"|usage": ?\{)')
"""Structural: inside a JSON string these quotes would be escaped."""


class Traced:
    """ASGI middleware before all others. It is made in the process that serves, so that its tracer is of that process;
    `new_count` gives what counts the spans there."""

    def __init__(self, app: App, *, settings: TracingSettings, new_count: Callable[[], OnSpans]) -> None:
        self._app = app
        self._flush_limit_s = settings.flush_limit_s
        self._tracer = build_tracer(settings, tier="cloud", on_spans=new_count())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, or the life of the application."""
        if scope["type"] == "lifespan":
            await self._app(scope, self._flushing(receive), send)
            return
        endpoint = endpoint_of(scope)
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        carried = read_carried(_headers(scope))
        with self._tracer.begin(f"POST {endpoint}", carried, c.http_facts("POST", endpoint)) as span:
            scope[_SPAN], scope[_ENDPOINT] = span, endpoint
            try:
                await self._app(scope, receive, _noting(span, send))
            except asyncio.CancelledError:
                span.note({c.OUTCOME: "cancelled"})
                raise

    def _flushing(self, receive: Receive) -> Receive:
        async def receive_and_flush() -> Message:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self._tracer.close(self._flush_limit_s)
            return message

        return receive_and_flush


def watched(scope: Scope, items: AsyncGenerator[Any, None], model: str, *, stream: bool) -> AsyncGenerator[Any, None]:
    """`items` of an answer as they are, their way watched as a part of the request's span where that is recorded."""
    span: Span = scope.get(_SPAN, NO_SPAN)
    return _watched(span, items, scope[_ENDPOINT], model, stream=stream) if span.recording else items


async def _watched(
    span: Span, items: AsyncIterator[Any], endpoint: Endpoint, model: str, *, stream: bool
) -> AsyncGenerator[Any, None]:
    asked = c.asked_facts(endpoint, model, stream=stream)
    span.note(asked)
    with span.child(c.span_name(endpoint, model), kind="client", facts=asked) as work:
        try:
            async for item in items:
                if told := _told(item):
                    work.note({c.RESPONSE_MODEL: model, **told})
                    span.note({c.RESPONSE_MODEL: model, **told})
                if not isinstance(item, bytes):
                    work.end()  # it is the whole answer, and nobody asks for more
                yield item
        except IsthmusError as error:
            span.note({c.CODE: error.code})
            if error.status >= 500:
                span.fail(error.code)
            raise


def _told(item: Any) -> Facts:
    """Usage and ends of choices in one event of a stream, or in a whole answer."""
    if not isinstance(item, bytes):
        usage = getattr(item, "usage", None)
        ends = [getattr(choice, "finish_reason", None) for choice in getattr(item, "choices", ())]
        return _answered(getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None), ends)
    if not item.startswith(b"data: {") or _TELLS.search(item) is None:
        return {}
    try:
        value = orjson.loads(item[5:])
    except orjson.JSONDecodeError:
        return {}
    usage = value.get("usage") or {}
    ends = [choice.get("finish_reason") for choice in value.get("choices") or ()]
    return _answered(usage.get("prompt_tokens"), usage.get("completion_tokens"), ends)


def _answered(input_tokens: int | None, output_tokens: int | None, ends: list[str | None]) -> Facts:
    reasons = [end for end in ends if end is not None]
    told = c.answered_facts(input_tokens=input_tokens, output_tokens=output_tokens, finish_reasons=reasons)
    return {name: value for name, value in told.items() if value is not None}


def _headers(scope: Scope) -> CIMultiDictProxy[str]:
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    return CIMultiDictProxy(CIMultiDict(pairs))


def _noting(span: Span, send: Send) -> Send:
    async def send_and_note(message: Message) -> None:
        if message["type"] == "http.response.start":
            span.note({c.HTTP_STATUS: message["status"]})
            if message["status"] >= 500:
                span.fail(str(message["status"]))
        await send(message)

    return send_and_note
