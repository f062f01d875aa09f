"""Errors in the shape that OpenAI clients parse."""

from __future__ import annotations

from typing import Any

import orjson

from shared.errors import IsthmusError
from shared.openai.facts import Endpoint


def envelope(error: IsthmusError) -> dict[str, Any]:
    """The OpenAI error object for `error`."""
    named = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return {"error": {**named, **error.details}}


def envelope_bytes(error: IsthmusError) -> bytes:
    """The same as JSON bytes."""
    return orjson.dumps(envelope(error))


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
