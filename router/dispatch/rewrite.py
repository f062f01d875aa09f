"""Sets single fields inside a body's bytes and leaves every other byte as it came: the model's name, a rule's cap."""

from __future__ import annotations

import re
from typing import Any

import orjson

from shared.openai.facts import LIMIT_FIELDS, Endpoint

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_COLON = re.compile(rb"\s*:\s*")
_VALUE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[^\s,{}\[\]"]+', re.DOTALL)


def with_model(raw: bytes, model: str) -> bytes:
    """`raw`, one JSON object that was parsed and validated before, with the value of its own `model` replaced."""
    found = _value_of(raw, "model")
    if found is None:
        raise ValueError("the body has no model of its own")
    return raw[: found[0]] + orjson.dumps(model) + raw[found[1] :]


def capped_fields(endpoint: Endpoint, body: dict[str, Any], cap_tokens: int | None) -> dict[str, int]:
    """The fields of `body` that a cap on the answer changes or adds, with their new values."""
    if cap_tokens is None or endpoint is Endpoint.EMBEDDINGS:
        return {}
    limits = LIMIT_FIELDS[endpoint]
    asked = [name for name in limits if body.get(name) is not None]
    if asked:
        return {name: cap_tokens for name in asked if body[name] > cap_tokens}
    return {limits[-1]: cap_tokens}


def with_fields(raw: bytes, fields: dict[str, int]) -> bytes:
    """`raw` with these fields of its own set: replaced where they stand, else put first."""
    for name, value in fields.items():
        found = _value_of(raw, name)
        if found is not None:
            raw = raw[: found[0]] + b"%d" % value + raw[found[1] :]
        else:
            start = raw.index(b"{") + 1
            raw = raw[:start] + orjson.dumps(name) + b":%d," % value + raw[start:]
    return raw


def _value_of(raw: bytes, name: str) -> tuple[int, int] | None:
    """Where the text, number or literal of the object's own field `name` stands."""
    depth = 0
    for token in _TOKEN.finditer(raw):
        found = token.group()
        if found in (b"{", b"["):
            depth += 1
        elif found in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and (colon := _COLON.match(raw, token.end())) and orjson.loads(found) == name:
            value = _VALUE.match(raw, colon.end())
            return value.span() if value else None
    return None
