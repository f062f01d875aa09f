"""An HTTP server whose every answer is in the OpenAI envelope, also to what is no HTTP at all.

The library answers a request that it cannot parse, and one that expects what it does not know, with plain text that
quotes the request, and writes the same into the log. Neither must happen: what is quoted may hold a key or a prompt.
"""

from __future__ import annotations

from collections.abc import Awaitable

from aiohttp import HttpVersion11, web
from aiohttp.web_protocol import RequestHandler

from shared import logs
from shared.errors import ExpectationFailed, InvalidRequest, IsthmusError, PayloadTooLarge
from shared.http.direct import DIRECT, Handle, directly
from shared.http.errors import error_response, request_id_of
from shared.identifiers import Identifiers


class _Handler(RequestHandler):
    __slots__ = ()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """The library does this after every read of a body. Where nothing was held up, nothing goes on."""
        if self._reading_paused or self._buffer_paused:
            super().resume_reading(resume_parser)

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
        server.request_handler = _expecting_little(server.request_handler)
        handlers = self.app.get(DIRECT)
        if handlers:
            server.request_handler = directly(server.request_handler, handlers, self.app.middlewares)
        return server


def _expecting_little(app: Handle) -> Handle:
    """`app`, which is spared requests whose `Expect` is anything but the one expectation that HTTP knows (RFC 9110,
    10.1.1). Before HTTP/1.1 there were none, and the header says nothing."""
    ids = Identifiers()

    async def refuse(request: web.Request) -> web.StreamResponse:
        error = ExpectationFailed("The only expectation that can be met is 100-continue.", param="expect")
        # Who expects something may hold the body back: the connection cannot be used again.
        response = error_response(error, close=True)
        response.headers["x-request-id"] = request_id_of(request, ids)
        return response

    def handle(request: web.Request) -> Awaitable[web.StreamResponse]:
        expected = request.headers.getall("Expect", ())
        if any(each.lower() not in ("", "100-continue") for each in expected) and request.version >= HttpVersion11:
            return refuse(request)
        return app(request)

    return handle


def _error_of(status: int) -> IsthmusError:
    if status >= 500:
        return IsthmusError("The server failed on this request.")
    if status == 413:
        return PayloadTooLarge("The request is larger than the limit.")
    return InvalidRequest("The request is not valid HTTP.", code="malformed_http")
