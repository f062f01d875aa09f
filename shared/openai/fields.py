"""Says what a field's name and its value say together: `{"password": "…"}`, `{"name": "X-Api-Key", "value": "…"}`.

Which names matter is the scanner's to decide; here only what cannot be one is left out, so that most fields cost
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

FIELD_SIGN = "\x1f"
"""Stands between a field's name and its value in a text of both; the value goes on to the end of that text."""
MAX_VALUE_CHARS = 1024
_MAX_NAME_CHARS = 128
_MAY_NAME = re.compile(
    r"(?i)pass|pwd|psk|secret|key|token|cred|auth|cookie|session|sign|pin\b|otp|code|mdp|mot|clave|senha|wort|woord|kode|ord\b"
    r"|salasana|haslo|hesl|jelsz|parol|sifre|lozinka|geslo|slapta|lykil|sandi|[^\x00-\x7f]"
)
_NAMES = ("name", "key", "header", "field", "k", "id", "label")
_VALUES = ("value", "val", "v", "content", "data", "default")


_NAME_SET = frozenset(_NAMES)
_PLAIN_KEYS = frozenset({"role", "content", "messages", "model", "stream", "prompt", "input", "type", "text"})
"""Keys of most objects, and none of them names a credential: they need no search."""


def named_values(node: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Key, name and value of each field that may be a credential: by its own key, or by a neighbour that names it."""
    for key, value in node.items():
        if key in _PLAIN_KEYS:
            continue
        if len(key) <= _MAX_NAME_CHARS and _MAY_NAME.search(key):
            for item in _texts_of(value):
                yield key, key, item
    if _NAME_SET.isdisjoint(node):
        return
    name = next((node[each] for each in _NAMES if isinstance(node.get(each), str)), None)
    if name is not None and len(name) <= _MAX_NAME_CHARS and _MAY_NAME.search(name):
        for key in _VALUES:
            text = _text_of(node.get(key))
            if text is not None:
                yield key, name, text


def named_pair(items: list[Any]) -> tuple[str, str] | None:
    """Name and value where a list is a pair of them, as headers often are."""
    if len(items) != 2 or not isinstance(items[0], str) or len(items[0]) > _MAX_NAME_CHARS:
        return None
    text = _text_of(items[1])
    return (items[0], text) if text is not None and _MAY_NAME.search(items[0]) else None


def _texts_of(value: Any) -> Iterator[str]:
    """The value of a field, or the strings of a list under one name. Numbers in a list are tokens, not a credential."""
    values = [item for item in value if isinstance(item, str)] if isinstance(value, list) else [value]
    yield from (text for text in map(_text_of, values) if text is not None)


def _text_of(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    text = str(value)
    return text if 3 <= len(text) <= MAX_VALUE_CHARS else None
