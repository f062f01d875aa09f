"""Puts together numbers at the edges of a body's texts: one may have been cut in two.

A number may be cut between a message and the field `user`, a name, the metadata, two arguments or two descriptions, in
whatever order these are written. Neighbours in the document count, in both orders, and the last is a neighbour of the
first; but only where there are few such numbers: of the many in a table, some pair always passes a check.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_PIECES = 4
_PIECE = r"[0-9](?:[ -]?[0-9]){3,14}"
_HEAD = re.compile(rf"\s*({_PIECE})(?![ -]?[0-9]|[A-Za-z_])")
_TAIL = re.compile(rf"(?<![0-9A-Za-z_.])({_PIECE})\s*\Z")
_TAIL_CHARS = 40
_DIGITS = frozenset("0123456789")
_MIN_TOGETHER, _MAX_TOGETHER = 12, 19
"""Digits of the shortest and the longest number that is looked for."""
_NOT_TEXT = frozenset({"model", "role", "type", "id", "tool_call_id"})
"""Keys of values that name something: nobody types half a number there."""


class Pieces:
    """Numbers at the edges of texts, in the order of the document."""

    def __init__(self) -> None:
        self._edges: list[tuple[str, str]] = []

    def note(self, key: str, text: str) -> None:
        """See whether a number stands at an edge of `text`, the value behind `key`."""
        if key in _NOT_TEXT or len(self._edges) > MAX_PIECES:
            return
        head = _HEAD.match(text)
        ends_in_digit = text[-_TAIL_CHARS:].rstrip()[-1:] in _DIGITS
        tail = _TAIL.search(text, max(0, len(text) - _TAIL_CHARS)) if ends_in_digit else None
        if head or tail:
            self._edges.append((head[1] if head else "", tail[1] if tail else ""))

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Two numbers that may be one."""
        if not 2 <= len(self._edges) <= MAX_PIECES:
            return
        neighbours = [(at, (at + 1) % len(self._edges)) for at in range(len(self._edges))]
        for left, right in dict.fromkeys(pair for at, after in neighbours for pair in ((at, after), (after, at))):
            first, second = self._edges[left][1], self._edges[right][0]
            if first and second and _MIN_TOGETHER <= sum(map(str.isdigit, first + second)) <= _MAX_TOGETHER:
                yield first, second
