"""Middleware that makes each request for a model a span of its caller's trace, and names the trace in log lines."""

from __future__ import annotations

from collections.abc import Awaitable, Collection

from aiohttp import web
from aiohttp.typedefs import Middleware
from structlog.contextvars import bound_contextvars

from shared.http.errors import Handler
from shared.openai.facts import Endpoint
from shared.tracing.conventions import HTTP_STATUS, http_facts
from shared.tracing.port import NO_SPAN, Span, Tracer
from shared.tracing.w3c import TRACE_PARENT, Carried, read_carried

TRACE_ID_HEADER = "x-isthmus-trace-id"
_SPAN = web.RequestKey("span", Span)
_CARRIED = web.RequestKey("carried", Carried)
_OPENAI = frozenset(endpoint.value for endpoint in Endpoint)


def span_of(request: web.Request) -> Span:
    """The span of a request."""
    span: Span = request.get(_SPAN, NO_SPAN)
    return span


def carried_by(request: web.Request, span: Span) -> Carried | None:
    """The trace that the caller sent; `span` is that of the request."""
    return None if span is NO_SPAN else request.get(_CARRIED)


def trace(app: web.Application, tracer: Tracer, *, flush_limit_s: float, also: Collection[str] = frozenset()) -> None:
    """Make requests of `app` for OpenAI's routes, and `also` for those, spans: from before all other middleware, so
    that their refusals are seen too. At the end of `app` the last spans have `flush_limit_s` to be sent."""

    async def flush(_: web.Application) -> None:
        await tracer.close(flush_limit_s)

    app.middlewares.insert(0, _middleware(tracer, _OPENAI | frozenset(also)))
    app.on_response_prepare.append(_name_trace)
    app.on_cleanup.append(flush)


async def _name_trace(request: web.Request, response: web.StreamResponse) -> None:
    if (trace_id := span_of(request).trace_id) is not None:
        response.headers[TRACE_ID_HEADER] = trace_id


def _middleware(tracer: Tracer, routes: frozenset[str]) -> Middleware:
    @web.middleware
    def handle(request: web.Request, handler: Handler) -> Awaitable[web.StreamResponse]:
        if not tracer.starts_traces and TRACE_PARENT not in request.headers:
            return handler(request)
        if request.path not in routes or request.method != "POST":
            return handler(request)
        return traced(request, handler)

    async def traced(request: web.Request, handler: Handler) -> web.StreamResponse:
        carried = read_carried(request.headers)
        span = tracer.begin(f"POST {request.path}", carried, http_facts("POST", request.path))
        if span is NO_SPAN:
            return await handler(request)
        request[_SPAN] = span
        if carried is not None:
            request[_CARRIED] = carried
        with span, bound_contextvars(trace_id=span.trace_id):
            response = await handler(request)
            if span.trace_id is not None and not response.prepared:
                response.headers[TRACE_ID_HEADER] = span.trace_id
            span.note({HTTP_STATUS: response.status})
            if response.status >= 500:
                span.fail(str(response.status))
            return response

    return handle
