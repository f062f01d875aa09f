"""Breaks the spellings of control tokens in a caller's texts, on both tiers alike, so that they stay text.

A template is rendered to text before it is cut into tokens, so `<|im_end|>` inside a tool result would end the message
and let the rest of it speak as the system. A word joiner (U+2060, invisible and without width) breaks the spelling. The
raw prompt of /v1/completions is left alone: writing control tokens is what it is for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shared.errors import InvalidRequest

ROUNDS = 3
"""Breaking one spelling can form another; texts that go on doing so are built for it."""
SCANNED = ("messages", "tools")
_JOINER = "\u2060"


def texts_of(body: Mapping[str, Any]) -> Iterator[str]:
    """Every text in the scanned fields of `body`."""
    stack: list[Any] = [body.get(name) for name in SCANNED]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, dict):
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def broken(node: Any, spellings: Sequence[str]) -> Any:
    """`node` with each of `spellings`, the longest first, broken in all its texts but keys of objects."""
    if isinstance(node, str):
        for spelling in spellings:
            node = node.replace(spelling, spelling[0] + _JOINER + spelling[1:])
        return node
    if isinstance(node, dict):
        return {key: broken(value, spellings) for key, value in node.items()}
    if isinstance(node, list):
        return [broken(value, spellings) for value in node]
    return node


def built_around() -> InvalidRequest:
    """The error for texts in which breaking one control token forms another."""
    return InvalidRequest("The text is built around control tokens of this model.", param="messages")
