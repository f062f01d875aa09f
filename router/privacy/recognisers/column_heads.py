"""Finds what the head of a table says of the column that a value stands in, or an `INSERT` of its columns.

A head names every value below it, as a word before a number names that one. It counts only where head and row have
as many cells, so that a comma within a value cannot shift a name to another's place.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple

from router.privacy.normalise import Span

MAX_LINE_CHARS = 4_096
_MAX_NAME_CHARS = 64
_NAME = re.compile(r"[^\W\d][^\n]*")
_FIGURE = re.compile(r"[0-9]{3}")
_QUOTES = " \"'`*\t\r"
_PARTED_BY = tuple(re.compile(rf"\"[^\"]*\"|(?P<sign>{sign})") for sign in (r"\t", r"\|", ";", ",", " {2,}"))
"""The signs that part the cells of a row, the surest first; none of them does within quotes."""
_INSERT = re.compile(r"(?i)\binsert\s{1,8}into\s{1,8}[\w.`\"\[\]]{1,128}\s{0,8}\((?P<names>[^()]{1,2000})\)")
_IN_TUPLE = re.compile(r"'[^']*'|(?P<sign>,)")
_MOST_LINES = 4
"""Lines behind a blank one of which one may be the head: `Here they are:` may stand before it."""


class Head(NamedTuple):
    """The first line of a table: what parts its cells, and a name for each, some of them perhaps empty."""

    parted_by: re.Pattern[str]
    names: list[str]

    def cells(self, row: str) -> list[Span] | None:
        """The spans of the cells of a row, without blanks and quotes; None where it has more or fewer than the head."""
        cells = _cells_in(row, self.parted_by)
        return cells if len(cells) == len(self.names) else None

    def name_at(self, row: str, at: int) -> str | None:
        """The name over the character `at` of a row."""
        cells = self.cells(row)
        if cells is None:
            return None
        return next((name for name, (start, end) in zip(self.names, cells, strict=True) if start <= at < end), None)


def head_of(line: str) -> Head | None:
    """The head that a line is; None where it is a row like others, or none of a table."""
    if len(line) > MAX_LINE_CHARS or _FIGURE.search(line):
        return None
    for parted_by in _PARTED_BY:
        names = [line[start:end] for start, end in _cells_in(line, parted_by)]
        if len(names) > 1:
            is_head = all(len(name) <= _MAX_NAME_CHARS and _NAME.match(name) for name in names if name)
            return Head(parted_by, names) if is_head else None
    return None


class ColumnHeads:
    """The heads in one text. Asked in ascending order, all questions together read the text about once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._block = (0, 0)
        self._heads: list[tuple[int, Head]] = []
        self._inserts: list[tuple[int, Head]] | None = None

    def over(self, at: int) -> str | None:
        """The name over the character `at`; None where it stands in no table."""
        if not self._block[0] <= at < self._block[1]:
            self._enter_block(at)
        return self._over_line(at) or self._over_tuple(at)

    def _enter_block(self, at: int) -> None:
        """Look for heads in the first of the lines around `at` that no blank line parts."""
        text = self._text
        begin = text.rfind("\n\n", 0, at)
        begin = 0 if begin == -1 else begin + 2
        stop = text.find("\n\n", at)
        self._block, self._heads = (begin, len(text) if stop == -1 else stop), []
        for _ in range(_MOST_LINES):
            end = text.find("\n", begin, begin + MAX_LINE_CHARS)
            if end == -1:
                return
            head = head_of(text[begin:end])
            self._heads += [] if head is None else [(end, head)]
            begin = end + 1

    def _over_line(self, at: int) -> str | None:
        names = (self._named_in(head, at, "\n", "\n") for end, head in reversed(self._heads) if end < at)
        return next((name for name in names if name), None)

    def _over_tuple(self, at: int) -> str | None:
        """The column that an `INSERT` before it names for this place of a row in parentheses."""
        if self._inserts is None:
            found = _INSERT.finditer(self._text)
            self._inserts = [(match.end(), Head(_IN_TUPLE, _names_in(match["names"]))) for match in found]
        last = bisect_right(self._inserts, at, key=lambda insert: insert[0]) - 1
        return None if last < 0 else self._named_in(self._inserts[last][1], at, "(", ")")

    def _named_in(self, head: Head, at: int, before: str, after: str) -> str | None:
        """The name over `at` in the row that stands between two signs."""
        text, floor = self._text, max(0, at - MAX_LINE_CHARS)
        start, end = text.rfind(before, floor, at) + 1, text.find(after, at, at + MAX_LINE_CHARS)
        if before != after and (start == 0 or end == -1 or after in text[start:at]):
            return None
        row = text[max(floor, start) : end if end != -1 else at + MAX_LINE_CHARS]
        return head.name_at(row, at - max(floor, start))


def _names_in(columns: str) -> list[str]:
    return [name.strip(_QUOTES) for name in columns.split(",")]


def _cells_in(row: str, parted_by: re.Pattern[str]) -> list[Span]:
    begin, stop = len(row) - len(row.lstrip(" ")), len(row.rstrip(" \r"))
    cells: list[Span] = []
    for part in parted_by.finditer(row, begin, stop):
        if part["sign"]:
            cells.append(_trimmed(row, begin, part.start()))
            begin = part.end()
    return [*cells, _trimmed(row, begin, max(begin, stop))]


def _trimmed(row: str, start: int, end: int) -> Span:
    inner = row[start:end]
    start += len(inner) - len(inner.lstrip(_QUOTES))
    return start, max(start, end - len(inner) + len(inner.rstrip(_QUOTES)))
