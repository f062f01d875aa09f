"""Errors in the shape that OpenAI clients parse."""

from __future__ import annotations

from typing import Any

import orjson

from shared.errors import IsthmusError


def envelope(error: IsthmusError) -> dict[str, Any]:
    """The OpenAI error object for `error`."""
    named = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return {"error": {**named, **error.details}}


def envelope_bytes(error: IsthmusError) -> bytes:
    """The same as JSON bytes."""
    return orjson.dumps(envelope(error))


def error_event(error: IsthmusError) -> bytes:
    """The one server-sent event that ends a stream which broke after content; no `[DONE]` follows it."""
    return b"data: " + envelope_bytes(error) + b"\n\n"
