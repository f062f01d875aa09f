"""Turns what the engine says about a request into our errors: field and cause, never a value or an internal name."""

from __future__ import annotations

import re
from typing import Any

import orjson

from shared.errors import BackendError, ContextLengthExceeded, InvalidRequest, IsthmusError

_CONTEXT = re.compile(r"maximum context length is (\d+) tokens")
_TOTAL = re.compile(r"for a total of (?:at least )?(\d+) tokens")
_OUTPUT = re.compile(r"=(\d+) cannot be greater than \S+=(\d+)")
_FIELD = re.compile(r"[a-z][a-z_]{0,63}\Z")
_PROMPT_FIELDS = {"input_tokens": "messages", "input_text": "messages"}
"""The engine's names for the prompt; clients know it under the field of their own route."""
_ERROR_EVENT = re.compile(rb'\s*data:\s*(\{\s*"error"\s*:.*\})\s*\Z', re.DOTALL)


def translated(message: str, status: int, param: str | None, *, prompt_field: str = "messages") -> IsthmusError:
    """The error for an engine's refusal.

    The engine's message is read, not passed on: it repeats values of the request, names classes and carries ids.
    """
    if status >= 500 or status < 400:
        return engine_failed()
    if found := _CONTEXT.search(message):
        return _too_long(message, limit_tokens=int(found.group(1)), param=prompt_field)
    if found := _OUTPUT.search(message):
        needed, limit = (int(number) for number in found.groups())
        return ContextLengthExceeded.of(needed_tokens=needed, limit_tokens=limit, param=param or prompt_field)
    if param is not None:
        param = prompt_field if param in _PROMPT_FIELDS else param if _FIELD.match(param) else None
    reason = "The model cannot take this value." if param else "The model cannot serve this request as it is."
    return InvalidRequest(reason, param=param)


def engine_failed() -> BackendError:
    """The error when the engine did not do its part."""
    return BackendError("The model failed on this request.", code="engine_failed")


def grammar_refused() -> InvalidRequest:
    """The error when the engine failed on a request that brought a grammar of its own: one that never ends, or that no
    token satisfies, is found out while it writes. It fails so everywhere, and must not count against this server."""
    return InvalidRequest("The engine could not follow this grammar.", param="structured_outputs")


def of_event(event: bytes, *, prompt_field: str = "messages") -> IsthmusError | None:
    """The error in a server-sent event of the engine, or None for an ordinary event."""
    if b'"error"' not in event[:64]:
        return None
    match = _ERROR_EVENT.match(event)
    if match is None:
        return None
    details: dict[str, Any] = orjson.loads(match.group(1))["error"]
    status = details.get("code")
    return translated(
        str(details.get("message", "")),
        status if isinstance(status, int) else 500,
        details.get("param"),
        prompt_field=prompt_field,
    )


def _too_long(message: str, *, limit_tokens: int, param: str) -> ContextLengthExceeded:
    if found := _TOTAL.search(message):
        return ContextLengthExceeded.of(needed_tokens=int(found.group(1)), limit_tokens=limit_tokens, param=param)
    # Refused by its length in characters, before it was cut into tokens.
    return ContextLengthExceeded(
        f"This request needs more tokens than the context of {limit_tokens} tokens has.", param=param
    )
