"""An HTTP server whose every answer is in the OpenAI envelope, also to what is no HTTP at all.

The library answers a request that it cannot parse with plain text that quotes the request, and writes the same into
the log. Neither must happen: what cannot be parsed may hold a key or a prompt.
"""

from __future__ import annotations

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from shared import logs
from shared.errors import InvalidRequest, IsthmusError, PayloadTooLarge
from shared.http.errors import error_response


class _Handler(RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun, there cannot be another")
        logs.get("http").info("unreadable_request", status=status, error=type(exc).__name__ if exc else None)
        return error_response(_error_of(status), close=True)


class _Server(web.Server):
    def __call__(self) -> RequestHandler:
        return _Handler(self, loop=self._loop, **self._kwargs)


class Runner(web.AppRunner):
    """Runs an application on such a server."""

    __slots__ = ()

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        server.__class__ = _Server  # an application builds its server itself, and takes no other class for it
        return server


def _error_of(status: int) -> IsthmusError:
    if status >= 500:
        return IsthmusError("The server failed on this request.")
    if status == 413:
        return PayloadTooLarge("The request is larger than the limit.")
    return InvalidRequest("The request is not valid HTTP.", code="malformed_http")
