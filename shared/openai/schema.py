"""Bounds on JSON schemas that clients send: what a grammar compiler can take without stalling every other client.

Measured on llama.cpp's grammar builder: thousands of enum values or properties block all streams for 40 to 200 s,
nesting of 10,000 ends the process. So size, depth, breadth and patterns are bounded before an engine sees them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import jsonschema
import orjson

MAX_SCHEMA_BYTES = 64 * 1024
MAX_SCHEMA_DEPTH = 48
MAX_ENUM_VALUES = 512
MAX_PROPERTIES = 256
MAX_PATTERN_CHARS = 256
MAX_REFERENCE_CHAIN = 16


def check_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return `schema` when it is a JSON schema within the bounds.

    Raises:
        ValueError: with a reason that names the keyword, never a value.
    """
    _check_bounds(schema)  # depth comes first: what follows recurses
    if len(orjson.dumps(schema)) > MAX_SCHEMA_BYTES:
        raise ValueError(f"the schema is larger than {MAX_SCHEMA_BYTES} bytes")
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise ValueError(f"not a valid JSON schema at {_keywords(error.absolute_path)}") from None
    _check_references(schema, schema, (), set())
    return schema


def _keywords(path: Iterable[str | int]) -> str:
    """The place of a fault in words of JSON schema; names that the caller chose become `*`."""
    vocabulary = jsonschema.Draft202012Validator.VALIDATORS
    shown = [str(part) if isinstance(part, int) or part in vocabulary else "*" for part in path]
    return ".".join(shown) or "its root"


def _check_bounds(schema: dict[str, Any]) -> None:
    level: list[Any] = [schema]
    for _ in range(MAX_SCHEMA_DEPTH):
        deeper: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                _check_node(node)
                deeper.extend(node.values())
            elif isinstance(node, list):
                deeper.extend(node)
        if not deeper:
            return
        level = deeper
    raise ValueError(f"the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")


def _check_node(node: dict[str, Any]) -> None:
    if isinstance(enum := node.get("enum"), list) and len(enum) > MAX_ENUM_VALUES:
        raise ValueError(f"an enum has more than {MAX_ENUM_VALUES} values")
    if isinstance(properties := node.get("properties"), dict) and len(properties) > MAX_PROPERTIES:
        raise ValueError(f"an object has more than {MAX_PROPERTIES} properties")
    if isinstance(pattern := node.get("pattern"), str):
        _check_pattern(pattern)
    for keyword in ("minItems", "maxItems", "minLength", "maxLength"):
        bound = node.get(keyword)
        if isinstance(bound, int) and bound > 4096:
            raise ValueError(f"{keyword} is over 4096, which a grammar cannot hold")


def _check_pattern(pattern: str) -> None:
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"a pattern is longer than {MAX_PATTERN_CHARS} characters")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        raise ValueError("a pattern is not a valid regular expression") from None
    if _nests_quantifiers(pattern):
        raise ValueError("a pattern repeats a group that itself repeats, which is not supported")


def _nests_quantifiers(pattern: str) -> bool:
    """Whether an unbounded repeat stands inside a group that is repeated: the shape of catastrophic backtracking."""
    repeats_inside = [False]
    in_class = False
    index = 0
    while index < len(pattern):
        char = pattern[index]
        following = pattern[index + 1 : index + 2]
        if char == "\\":
            index += 1
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char == "(":
            repeats_inside.append(False)
        elif char == ")" and len(repeats_inside) > 1:
            inner = repeats_inside.pop()
            if inner and following in ("*", "+", "{"):
                return True
            repeats_inside[-1] = repeats_inside[-1] or inner
        elif char in "*+{":
            repeats_inside[-1] = True
        index += 1
    return False


def _check_references(node: Any, root: dict[str, Any], open_refs: tuple[str, ...], sound: set[str]) -> None:
    """Refuse references that leave the schema or lead back to themselves.

    `sound` holds references that were followed to their end, so that each is followed once: a chain in which every
    level names the next one twice would otherwise take 2 ** levels steps.
    """
    if isinstance(node, list):
        for value in node:
            _check_references(value, root, open_refs, sound)
    if not isinstance(node, dict):
        return
    reference = node.get("$ref")
    if isinstance(reference, str) and reference not in sound:
        if reference in open_refs or reference == "#":
            raise ValueError("a recursive $ref is not supported")
        if len(open_refs) >= MAX_REFERENCE_CHAIN:
            raise ValueError("a chain of $ref is too long")
        _check_references(_resolve(reference, root), root, (*open_refs, reference), sound)
        sound.add(reference)
    for value in node.values():
        _check_references(value, root, open_refs, sound)


def _resolve(reference: str, root: dict[str, Any]) -> Any:
    node: Any = root
    if not reference.startswith("#/"):
        raise ValueError("a $ref must point inside the schema")
    for part in reference[2:].split("/"):
        part = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or part not in node:
            raise ValueError("a $ref points to nothing")
        node = node[part]
    return node
