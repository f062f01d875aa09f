"""Writes grammars that the engine cannot leave: for `response_format`, and the parts of those for tool calls.

The engine's own handling of `response_format` fences about half of a small model's answers in Markdown and blocks
every client for minutes on a large enum. Its llguidance grammars do neither, but accept a schema they cannot
compile without a word and then constrain nothing: so each one is compiled first (`grammar_check`), by the same library.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

_ANY_OBJECT = {"type": "object"}
_LAYOUT = {"x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}}
"""JSON on one line: where any white space is allowed, a small model can go on with it until its limit. It takes the
place of a caller's own `x-guidance`, which could relax what is enforced."""
HEAD = "%llguidance {}\n"
_COMBINING = ("allOf", "anyOf", "oneOf", "$ref")
_MERGED = ("properties", "patternProperties", "items", "prefixItems")
_MOST_EXCLUSIVE = 32


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar in llguidance's form, the field of the request that it enforces, and whether its schemas combine
    alternatives: compiling such a one can take time that grows exponentially with its size."""

    text: str
    param: str
    combines: bool = False


def of_format(response_format: dict[str, Any] | None) -> Grammar | None:
    """The grammar for a validated `response_format`; None where any text is allowed."""
    schema = schema_of(response_format)
    if schema is None:
        return None
    return Grammar(f"{HEAD}start: {rule(schema)}", "response_format", combines(schema))


def schema_of(response_format: dict[str, Any] | None) -> dict[str, Any] | None:
    """The schema that a validated `response_format` asks for; None where any text is allowed."""
    kind = (response_format or {}).get("type", "text")
    if response_format is None or kind == "text":
        return None
    schema: dict[str, Any] = response_format["json_schema"]["schema"] if kind == "json_schema" else _ANY_OBJECT
    return schema


def rule(schema: dict[str, Any]) -> str:
    """The right side of a rule for values of `schema`."""
    return f"%json {orjson.dumps(schema | _LAYOUT).decode()}"


def combines(schema: dict[str, Any]) -> bool:
    """Whether the compiler has to merge parts of the schema with each other."""
    return any(_merges(node) for node in _nodes(schema))


def _merges(node: dict[str, Any]) -> bool:
    combining = [name for name in _COMBINING if name in node]
    if len(combining) > 1 or (combining and any(name in node for name in _MERGED)):
        return True
    members = node.get("allOf")
    exclusive = node.get("oneOf")  # each is compared with each
    return (isinstance(members, list) and len(members) > 1) or (
        isinstance(exclusive, list) and len(exclusive) > _MOST_EXCLUSIVE
    )


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
