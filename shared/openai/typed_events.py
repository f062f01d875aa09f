"""Reads events of the responses and the messages API: each names its own kind in `type`, and no `[DONE]` follows."""

from __future__ import annotations

from typing import Any

import orjson

from shared.errors import StreamBroken
from shared.openai.sse import EventFacts, EventKind, data_of

_ERRORS = frozenset({"error", "response.failed"})
_ENDS = frozenset({"response.completed", "response.incomplete", "message_stop"})
_DONE_MARK = b"[DONE]"


def read_typed_event(event: bytes) -> EventFacts:
    """Classify one whole event. The last one is `DONE` and finished by itself.

    Raises:
        StreamBroken: a data line that is not a JSON object with a `type`.
    """
    data = data_of(event)
    if not data or data == _DONE_MARK:
        return EventFacts(EventKind.COMMENT)
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise StreamBroken("A backend sent an event that is not JSON.") from None
    kind = value.get("type") if isinstance(value, dict) else None
    if kind is None and isinstance(value, dict) and value.get("error") is not None:
        return EventFacts(EventKind.ERROR)
    if not isinstance(kind, str):
        raise StreamBroken("A backend sent an event without a type.")
    if kind in _ERRORS:
        return EventFacts(EventKind.ERROR)
    if kind in _ENDS:
        return EventFacts(EventKind.DONE, finished=True, usage=_usage_of(value))
    if kind == "message_delta":
        return EventFacts(EventKind.CONTENT, usage=_usage_of(value))
    is_content = kind == "content_block_delta" or kind.endswith(".delta")
    return EventFacts(EventKind.CONTENT if is_content else EventKind.OPENING)


def _usage_of(value: dict[str, Any]) -> dict[str, Any] | None:
    """The usage object, under the names of the chat API."""
    response = value.get("response")
    usage = response.get("usage") if isinstance(response, dict) else value.get("usage")
    if not isinstance(usage, dict):
        return None
    return {"completion_tokens": usage.get("output_tokens")}
