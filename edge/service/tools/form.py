"""The form in which a model writes tool calls when we, not the engine, read them: text, grammar and prompt agree on it.

    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Paris"}}
    </tool_call>

It is the form of Hermes, which Qwen, SmolLM3, Granite and others were trained on.
"""

from __future__ import annotations

from typing import Any

import orjson

from edge.service import grammar
from edge.service.grammar import HEAD, Grammar

OPENING = '<tool_call>\n{"name": "'
MIDDLE = '", "arguments": '
CLOSING = "}\n</tool_call>"
BETWEEN = "\n"
MOST_CALLS = 8
"""Calls in one answer: a small model that repeats itself would otherwise go on until its limit."""
_NOT_A_CALL = "/(?s:.*)/ & ~/<tool_call>(?s:.*)/"


def written(name: str, arguments: str) -> str:
    """A call as text. Arguments that are not JSON, which only a caller can send, stand as a string."""
    try:
        orjson.loads(arguments)
    except orjson.JSONDecodeError:
        arguments = orjson.dumps(arguments).decode()
    return f"{OPENING}{name}{MIDDLE}{arguments}{CLOSING}"


def grammar_of(
    functions: list[dict[str, Any]], *, most_calls: int, must_call: bool, otherwise: dict[str, Any] | None
) -> Grammar:
    """Calls of `functions` (tools' `function` objects), one to `most_calls`; unless `must_call`, the answer may be
    anything else instead, or JSON of the schema `otherwise` where there is one."""
    schemas = [_arguments(function.get("parameters")) for function in functions]
    further = f" ({_quoted(BETWEEN)} call){{0,{most_calls - 1}}}" if most_calls > 1 else ""
    lines = [
        f"start: call{further}{'' if must_call else ' | other'}",
        "call: " + " | ".join(f"call_{n}" for n in range(len(functions))),
    ]
    for n, (function, schema) in enumerate(zip(functions, schemas, strict=True)):
        opening = _quoted(f"{OPENING}{function['name']}{MIDDLE}")
        lines += [f"call_{n}: {opening} arguments_{n} {_quoted(CLOSING)}", f"arguments_{n}: {grammar.rule(schema)}"]
    if not must_call and otherwise is None:
        lines += ["other: OTHER", f"OTHER: {_NOT_A_CALL}"]
    elif not must_call and otherwise is not None:
        schemas.append(otherwise)
        lines.append(f"other: {grammar.rule(otherwise)}")
    return Grammar(HEAD + "\n".join(lines), "tools", any(grammar.combines(schema) for schema in schemas))


def _arguments(parameters: dict[str, Any] | None) -> dict[str, Any]:
    """The schema of a call's arguments: an object, and where nothing is said of further properties, without any."""
    if parameters is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    schema = {"type": "object"} | parameters
    closed = "properties" in schema and not any(
        name in schema for name in ("additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref")
    )
    return schema | {"additionalProperties": False} if closed else schema


def _quoted(text: str) -> str:
    """A literal of the grammar; its escapes are those of JSON."""
    return orjson.dumps(text).decode()
