"""What the events of one chat stream have in common: all but the next words, so that those alone need be read.

Serving layers write each event of a stream alike, down to the byte, but for the text. Once one of them was parsed, an
event with the same beginning and the same end is as good as parsed if what stands between is one JSON string.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

_WORDS = re.compile(rb'"content": ?("(?:[^"\\]|\\.)*")')
_PREFIX_CHARS = len(b"data: ")
_END = b"\n\n"
_TRIES = 4
"""How often a stream may change what its events have in common before nothing is expected of it any more."""


class Stencil:
    """Of one stream; learns from its events as they come."""

    __slots__ = ("_between", "_left_tries", "_prefix", "_suffix")

    def __init__(self) -> None:
        self._prefix = self._suffix = self._between = b""
        self._left_tries = _TRIES

    def sift(self, data: bytes) -> tuple[int, list[bytes]]:
        """How many events of `data` carry text of one choice and nothing else, and those of which that cannot be told
        from here, without their ends. Each event is one line that begins with `data: `."""
        found = self._sifted(data) if self._prefix else None
        if found is None and self._left_tries and self._learn(data):
            found = self._sifted(data)
        return (0, _events_of(data)) if found is None else found

    def _sifted(self, data: bytes) -> tuple[int, list[bytes]] | None:
        """The same where events that are alike follow one another: between two texts stand the same bytes every time,
        so that one pass takes all of them apart."""
        start, end = data.find(self._prefix), data.rfind(self._suffix)
        first = start + len(self._prefix)
        if start < 0 or end < first or not (start == 0 or data.endswith(_END, 0, start)):
            return None
        words = data[first:end].split(self._between)
        if not _are_texts(words):
            return None
        return len(words), _events_of(data[:start] + data[end + len(self._suffix) :])

    def _learn(self, data: bytes) -> bool:
        """Take one of the first events for the form of all."""
        for event in data.split(_END, 2)[:2]:
            found = _WORDS.search(event)
            if found is None or found[1] == b'""' or b"\r" in event or b"\n" in event:
                continue
            prefix, suffix = event[: found.start(1)], event[found.end(1) :]
            # With another text in its place, that text is what changes: so the place is the one that is meant.
            if suffix and _is_text_of(prefix[_PREFIX_CHARS:] + b'"x"' + suffix, "x"):
                self._prefix, self._suffix = prefix, suffix + _END
                self._between = self._suffix + prefix
                self._left_tries -= 1
                return True
        return False


def is_plain(value: dict[str, Any]) -> bool:
    """Whether an event is what nearly all are: the next text of one choice, and no more. A no may be a maybe."""
    try:
        [choice] = value["choices"]
        if not choice["delta"]["content"] or choice["finish_reason"] is not None:
            return False
    except (KeyError, TypeError, ValueError):
        return False
    return value.get("usage") is None and value.get("error") is None


def _events_of(data: bytes) -> list[bytes]:
    return data[: -len(_END)].split(_END) if data else []


def _are_texts(words: list[bytes]) -> bool:
    """Whether each of `words` is one JSON string that is not empty."""
    try:
        # A line's end cannot stand in a JSON string, so none of them can reach into the next.
        texts = orjson.loads(b"[" + b",\n".join(words) + b"]")
        "".join(texts)
    except (orjson.JSONDecodeError, TypeError):  # no JSON, or something else than strings
        return False
    return len(texts) == len(words) and all(texts)


def _is_text_of(data: bytes, text: str) -> bool:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return type(value) is dict and is_plain(value) and bool(value["choices"][0]["delta"]["content"] == text)
