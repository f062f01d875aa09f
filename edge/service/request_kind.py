"""Guesses what an answer will be like from its request, as far as speculation cares."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from edge.scheduling.speculation import RequestKind

_CODE = re.compile(
    r"```|\b(?:def|class|function|import|return|const|public|void)\b[^.\n]*[({:;=]|[{};]\s*$", re.MULTILINE
)
_COPY_CHARACTERS = 600
"""A last message of this length brings the material that the answer will be made from."""


def kind_of(body: Mapping[str, Any]) -> RequestKind:
    """The kind of a validated request body; cheap, and allowed to be wrong: rates are kept by kind, not by content."""
    if body.get("tools") or body.get("response_format", {"type": "text"}) not in (None, {"type": "text"}):
        return RequestKind.STRUCTURED
    text = _last_text(body)
    if _CODE.search(text):
        return RequestKind.CODE
    return RequestKind.COPY if len(text) >= _COPY_CHARACTERS else RequestKind.PROSE


def _last_text(body: Mapping[str, Any]) -> str:
    prompt = body.get("prompt")
    if prompt is not None:
        return prompt if isinstance(prompt, str) else ""
    messages = body.get("messages") or [{}]
    return "\n".join(_texts(messages[-1].get("content")))


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]
