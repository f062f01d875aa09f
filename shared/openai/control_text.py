"""Breaks the spellings of control tokens in a caller's texts, on both tiers alike, so that they stay text.

A template is rendered to text before it is cut into tokens, so `<|im_end|>` inside a tool result would end the message
and let the rest of it speak as the system. A word joiner (U+2060, invisible and without width) breaks the spelling. The
raw prompt of /v1/completions is left alone: writing control tokens is what it is for.

Templates print schemas of tools with their keys, and engines read the arguments of calls as JSON before they print
them. A key cannot be broken, because it would be another one then, so such a request is refused; characters of
arguments that stand as escapes are written out before anybody looks for spellings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from shared.errors import InvalidRequest

ROUNDS = 3
"""Breaking one spelling can form another; texts that go on doing so are built for it."""
SCANNED = ("messages", "tools")
_JOINER = "\u2060"


def texts_of(body: Mapping[str, Any]) -> Iterator[str]:
    """Every text in the scanned fields of `body`; of tools also the keys, which the caller chose."""
    for name in SCANNED:
        yield from _texts(body.get(name), keys=name == "tools")


def _texts(root: Any, *, keys: bool) -> Iterator[str]:
    stack: list[Any] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, dict):
            stack.extend(node.values())
            if keys:
                yield from node
        elif isinstance(node, list):
            stack.extend(node)


def written_out(body: dict[str, Any]) -> dict[str, Any]:
    """`body` with the arguments of its calls free of escapes that an engine would read; the same object if they are."""
    messages = body.get("messages") or ()
    if not any(_escapes(call) for message in messages for call in _calls(message)):
        return body
    return body | {"messages": [_written_out(message) for message in messages]}


def _written_out(message: dict[str, Any]) -> dict[str, Any]:
    calls = [_unescaped(call) if _escapes(call) else call for call in _calls(message)]
    return message | {"tool_calls": calls} if calls else message


def _calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else []


def _escapes(call: dict[str, Any]) -> bool:
    arguments = call["function"].get("arguments")
    return isinstance(arguments, str) and "\\u" in arguments


def _unescaped(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    try:
        arguments = orjson.dumps(orjson.loads(function["arguments"])).decode()
    except orjson.JSONDecodeError:  # no engine reads it either
        return call
    return call | {"function": function | {"arguments": arguments}}


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
