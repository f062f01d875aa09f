"""The response side of an event stream: headers that keep proxies from holding tokens back."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from shared.http.direct import DirectResponse
from shared.http.tracing import TRACE_ID_HEADER, span_of

EVENT_STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


async def open_stream(request: web.Request, headers: Mapping[str, str]) -> web.StreamResponse:
    """Commit status 200 and start an event stream with `headers` added; they leave with what is written first."""
    response = _stream(request, headers)
    await response.prepare(request)
    return response


def begin_stream(request: web.Request, headers: Mapping[str, str]) -> DirectResponse:
    """The same on the short way, where no application adds anything to an answer, for who cannot wait."""
    response = _stream(request, headers)
    response.begin(request)
    return response


def _stream(request: web.Request, headers: Mapping[str, str]) -> DirectResponse:
    told = {**EVENT_STREAM_HEADERS, **headers}
    if (trace_id := span_of(request).trace_id) is not None:
        told[TRACE_ID_HEADER] = trace_id
    return DirectResponse(headers=told)


async def break_stream(response: web.StreamResponse, event: bytes) -> None:
    """End a stream that cannot go on: one error event and no `[DONE]`.

    The message ends whole and its connection stays: the headers did not announce an end, so a client may be sending
    its next request there already, and would lose it.
    """
    await response.write(event)
    await response.write_eof()
