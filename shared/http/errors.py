"""Turns every exception that reaches the HTTP edge into one OpenAI-shaped answer, and logs it without content."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from shared import logs
from shared.errors import InvalidRequest, IsthmusError, MethodNotAllowed, NotFound, PayloadTooLarge
from shared.identifiers import Identifiers
from shared.openai.envelope import envelope_bytes, error_headers

REQUEST_ID = web.RequestKey("request_id", str)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Shape = Callable[[web.Request, IsthmusError], bytes]
"""The body that tells a request of an error."""
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}\Z")


def request_id_of(request: web.Request, ids: Identifiers) -> str:
    """The caller's `x-request-id` when it is one plain token, else a new one of `ids`."""
    given = request.headers.getall("x-request-id", [])
    if len(given) == 1 and _REQUEST_ID.match(given[0]):
        return given[0]
    return f"req-{ids.new()}"


def error_response(error: IsthmusError, *, close: bool = False, body: bytes | None = None) -> web.Response:
    """The answer for `error`, with the headers that belong to it; without a `body`, in the OpenAI envelope."""
    content, headers = envelope_bytes(error) if body is None else body, error_headers(error)
    response = web.Response(status=error.status, body=content, content_type="application/json", headers=headers)
    if close or error.status in (401, 413, 415):
        # The body may not have been read: the connection cannot be used again.
        response.force_close()
    return response


def _enveloped(_: web.Request, error: IsthmusError) -> bytes:
    return envelope_bytes(error)


def middleware(component: str, shape: Shape = _enveloped) -> Middleware:
    """Middleware that gives each request an id and each failure a body of this shape: the OpenAI envelope, unless
    routes of another API are served."""
    log, ids = logs.get(component), Identifiers()

    @web.middleware
    async def handle(request: web.Request, handler: Handler) -> web.StreamResponse:
        request_id = request_id_of(request, ids)
        request[REQUEST_ID] = request_id
        try:
            response = await handler(request)
        except IsthmusError as error:
            response = _answer(request, error, shape)
        except web.HTTPException as error:
            response = _answer(request, _of_http(error), shape)
        except (ConnectionResetError, web.RequestPayloadError):
            raise
        except Exception:  # the edge of every handler: one log line that holds no content
            log.exception("unhandled", request_id=request_id)
            response = _answer(request, IsthmusError("The server failed on this request."), shape)
        if not response.prepared:
            response.headers.setdefault("x-request-id", request_id)
        return response

    return handle


def _answer(request: web.Request, error: IsthmusError, shape: Shape) -> web.Response:
    """The answer for `error`, unless one has begun.

    Raises:
        ConnectionResetError: bytes were sent already. A second head in the middle of a body would be read as content,
            so the connection ends instead.
    """
    if request.writer.output_size > 0:
        raise ConnectionResetError
    return error_response(error, body=shape(request, error))


def _of_http(error: web.HTTPException) -> IsthmusError:
    if isinstance(error, web.HTTPMethodNotAllowed):
        return MethodNotAllowed.of(error.allowed_methods)
    if error.status == 404:
        return NotFound("There is no such route.", code="unknown_route")
    if error.status == 413:
        return PayloadTooLarge("The body is larger than the limit.")
    wrapped = InvalidRequest if error.status < 500 else IsthmusError
    return wrapped("The request could not be served.")
