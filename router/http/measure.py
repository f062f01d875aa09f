"""Measures the prompt of a body in bytes of text, from which the policy estimates tokens."""

from __future__ import annotations

from typing import Any

import orjson

_TOKEN_BYTES = 3
"""A token id in a prompt counts as one token of the estimate, which is three bytes."""

_TEXTS = ("prompt", "input", "instructions", "system")
_JSON = ("tools", "response_format")


def text_bytes(body: dict[str, Any]) -> int:
    """Bytes of UTF-8 that the backend turns into the prompt: contents, tool calls, tools, legacy prompt or input, and
    what other APIs say ahead of the messages."""
    size = 0
    for message in body.get("messages") or ():
        size += _size(message.get("content"))
        if "tool_calls" in message:
            size += _json_size(message["tool_calls"])
    for name in _TEXTS:
        if name in body:
            size += _size(body[name])
    for name in _JSON:
        if name in body:
            size += _json_size(body[name])
    return size


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    if isinstance(value, list):
        return sum(_size(each) for each in value)
    if isinstance(value, dict):
        return _size(value.get("text")) + _size(value.get("content")) + _size(value.get("output"))
    return _TOKEN_BYTES if isinstance(value, int) else 0


def _json_size(value: Any) -> int:
    return len(orjson.dumps(value)) if value else 0
