"""Translates what the engine says went wrong into our errors: whose fault it is, without the engine's inner text."""

from __future__ import annotations

import re
from typing import Any

import orjson

from shared.errors import BackendStatus, ContextLengthExceeded, InvalidRequest, IsthmusError, NotReady

_TEMPLATE_REASON = re.compile(r"Jinja Exception: ([^\n]{1,200})")
_MESSAGES = "messages"
_TEXT_PARAMS = {"/v1/completions": "prompt", "/v1/embeddings": "input"}
"""The field that holds the text, where it is not the messages."""
_CLIENT_FAULTS = (
    "is not supported",
    "failed to parse",
    "invalid",
    "must be",
    "unsupported",
    "template",
    "expected",
    "peg-native",
)
"""Words of the engine's 5xx messages that a request, not the engine, causes (images without a projector, malformed
tool calls in the history, output that its own parser cannot read)."""

_ENGINE_FAULTS = ("invalid input batch",)
"""Those of its messages that hold such a word, and tell of a batch that the engine itself put together."""


def of_response(status: int, raw: bytes, *, path: str = "") -> IsthmusError:
    """The error for an answer of the engine to a request for `path`, with a status that is not success."""
    return _of(status, _error_object(raw), text_param=_TEXT_PARAMS.get(path, _MESSAGES))


def of_event(event: bytes) -> IsthmusError:
    """The error for an error event inside a stream."""
    _, _, data = event.partition(b":")
    details = _error_object(data)
    status = details.get("code")
    return _of(status if isinstance(status, int) else 500, details)


def _of(status: int, details: dict[str, Any], text_param: str = _MESSAGES) -> IsthmusError:
    message = details.get("message")
    message = message if isinstance(message, str) else ""
    if details.get("type") == "exceed_context_size_error":
        return _too_long(details, text_param)
    if reason := _TEMPLATE_REASON.search(message):
        text = f"The model's chat template refuses these messages: {reason[1].strip()}"
        return InvalidRequest(text, param="messages", code="template_error")
    if status == 503:
        return NotReady("The engine is loading the model.")
    words = message.lower()
    if 400 <= status < 500 or (
        any(word in words for word in _CLIENT_FAULTS) and not any(word in words for word in _ENGINE_FAULTS)
    ):
        return InvalidRequest("The engine cannot serve this request as it is.", code="refused_by_engine")
    return BackendStatus("The engine failed on this request.", backend_status=status, code="engine_error")


def _too_long(details: dict[str, Any], param: str) -> IsthmusError:
    needed, limit = details.get("n_prompt_tokens"), details.get("n_ctx")
    if isinstance(needed, int) and isinstance(limit, int):
        return ContextLengthExceeded.of(needed_tokens=needed, limit_tokens=limit, param=param)
    return ContextLengthExceeded("The prompt is longer than the context.", param=param)


def _error_object(raw: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    error = value.get("error") if isinstance(value, dict) else None
    return error if isinstance(error, dict) else value if isinstance(value, dict) else {}
