"""Replaces the model name inside a body's bytes and leaves every other byte as it came."""

from __future__ import annotations

import re

import orjson

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)
_COLON = re.compile(rb"\s*:\s*")


def with_model(raw: bytes, model: str) -> bytes:
    """`raw`, one JSON object that was parsed and validated before, with the value of its own `model` replaced."""
    depth = 0
    for token in _TOKEN.finditer(raw):
        found = token.group()
        if found in (b"{", b"["):
            depth += 1
        elif found in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and (colon := _COLON.match(raw, token.end())) and orjson.loads(found) == "model":
            value = _TOKEN.match(raw, colon.end())
            if value is None:
                break
            return raw[: value.start()] + orjson.dumps(model) + raw[value.end() :]
    raise ValueError("the body has no model of its own")
