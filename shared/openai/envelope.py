"""Errors in the shape that OpenAI clients parse."""

from __future__ import annotations

from typing import Any

import orjson

from shared.errors import IsthmusError, MethodNotAllowed
from shared.openai.facts import Endpoint

SHOULD_RETRY = "x-should-retry"
"""Whether OpenAI's clients send a refused request again: they heed `true` and `false`, whatever the status."""


def envelope(error: IsthmusError) -> dict[str, Any]:
    """The OpenAI error object for `error`."""
    named = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return {"error": {**named, **error.details}}


def envelope_bytes(error: IsthmusError) -> bytes:
    """The same as JSON bytes."""
    return orjson.dumps(envelope(error))


def error_headers(error: IsthmusError) -> dict[str, str]:
    """The headers that belong to the answer for `error`."""
    headers = retry_headers(error.retry_after_s, is_final=error.is_final)
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(error.allowed)
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return headers


def retry_headers(retry_after_s: int | None, *, is_final: bool) -> dict[str, str]:
    """Whether the same request may be sent again, and when. A client is told one of both: some of them heed the time
    alone, and would come again where it was told them beside the other."""
    if is_final:
        return {SHOULD_RETRY: "false"}
    return {} if retry_after_s is None else {"Retry-After": str(max(1, retry_after_s))}


def error_event(error: IsthmusError, endpoint: str = Endpoint.CHAT) -> bytes:
    """The one server-sent event that ends a stream which broke after content, in the shape of its API; no `[DONE]`
    follows it."""
    if endpoint == Endpoint.RESPONSES:
        value: dict[str, Any] = {"type": "error", "code": error.code, "message": error.message, "param": error.param}
        return b"event: error\ndata: " + orjson.dumps(value) + b"\n\n"
    if endpoint == Endpoint.MESSAGES:
        value = {"type": "error", "error": {"type": "api_error", "message": error.message, "code": error.code}}
        return b"event: error\ndata: " + orjson.dumps(value) + b"\n\n"
    return b"data: " + envelope_bytes(error) + b"\n\n"
