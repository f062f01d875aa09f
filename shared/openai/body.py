"""Strict JSON: turns the bytes of a request into one value that every reader must agree on, or refuses them.

Duplicate keys are refused at every depth, because the bytes are forwarded as they came: a scanner that sees the
last of two `content` keys and a backend that reads the first would let text past the privacy check.
"""

from __future__ import annotations

import math
import re
from typing import Any

import orjson

from shared.errors import InvalidRequest

MAX_DEPTH = 64
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BOM16 = (b"\xff\xfe", b"\xfe\xff")


def parse_object(raw: bytes, *, max_depth: int = MAX_DEPTH) -> dict[str, Any]:
    """Parse `raw` as one JSON object in UTF-8.

    Raises:
        InvalidRequest: not JSON, not an object, deeper than `max_depth`, duplicate keys, a non-finite number,
            half a surrogate pair, or a NUL in text. The message never echoes a value.
    """
    if not raw:
        raise InvalidRequest("The body is empty; a JSON object is required.")
    if raw.startswith(_BOM16) or b"\x00" in raw[:4]:
        raise InvalidRequest("The body must be JSON in UTF-8.")
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not valid JSON (at byte {error.pos}).") from None
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be a JSON object.")
    keys = _walk(value, max_depth)
    if _STRING.sub(b"", raw).count(b":") != keys:
        raise InvalidRequest("The body repeats a key inside one object.")
    return value


def _walk(root: dict[str, Any], max_depth: int) -> int:
    """Check every node; return the number of object keys seen."""
    keys = 0
    level: list[Any] = [root]
    for _ in range(max_depth):
        deeper: list[Any] = []
        for node in level:
            if isinstance(node, dict):
                keys += len(node)
                for key in node:
                    if "\x00" in key:
                        raise InvalidRequest("A key holds a NUL character.")
                children: Any = node.values()
            else:
                children = node
            for child in children:
                kind = type(child)
                if kind is str:
                    if "\x00" in child:
                        raise InvalidRequest("A text holds a NUL character.")
                elif kind is dict or kind is list:
                    deeper.append(child)
                elif kind is float and not math.isfinite(child):
                    raise InvalidRequest("A number is not finite.")
        if not deeper:
            return keys
        level = deeper
    raise InvalidRequest(f"The body is nested deeper than {max_depth} levels.")
