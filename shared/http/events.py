"""The response side of an event stream: headers that keep proxies from holding tokens back."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

EVENT_STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


class EventStream(web.StreamResponse):
    """A stream whose head goes out together with its first bytes: one write to the socket instead of two."""

    _send_headers_immediately = False  # aiohttp's own switch, which `web.Response` uses for the same end


async def open_stream(request: web.Request, headers: Mapping[str, str]) -> web.StreamResponse:
    """Commit status 200 and start an event stream with `headers` added; they leave with what is written first."""
    response = EventStream(status=200, headers={**EVENT_STREAM_HEADERS, **headers})
    await response.prepare(request)
    return response


async def break_stream(response: web.StreamResponse, event: bytes) -> None:
    """End a stream that cannot go on: one error event and no `[DONE]`.

    The message ends whole and its connection stays: the headers did not announce an end, so a client may be sending
    its next request there already, and would lose it.
    """
    await response.write(event)
    await response.write_eof()
