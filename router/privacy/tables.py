"""Reads the cells of a table beside the head of their column, where that says what they are.

`name,PESEL,password⏎Jan,44051401359,hunter2` says of every row what only its first line names. Each such cell is
written out behind its name, so that whatever reads `PESEL: 44051401359` reads a table too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from router.privacy.normalise import View
from router.privacy.recognisers.column_heads import Head, head_of
from router.privacy.recognisers.nearby import triggers_of, words
from router.privacy.written_out import NAMING, Named, written_out

TRIGGERS = (*triggers_of(NAMING), rb"\?-?[\"' ]{0,2}(?:[,;|\t]| {2})")
"""A name of another script is seen by the sign behind it."""
_RULE = re.compile(r"[-+=|: \r]+")
_PARTS = ("\t", "|", ";", ",", "  ")


def named_cells(view: View) -> Iterator[View]:
    """One view of all cells whose columns a head names, a paragraph each."""
    if "\n" in view.text:
        yield from written_out(view, _cells_in(view.text))


def _cells_in(text: str) -> Iterator[Named]:
    """The cells in columns that a head names."""
    naming = words(NAMING)
    head: Head | None = None
    named: list[tuple[int, str]] = []
    for (line, at), (following, _) in pairwise((*_lines_of(text), ("", 0))):
        row = head.cells(line) if head else None
        if row is None:
            head = head_of(line) if _is_of_one_table(line, following) else None
            named = [(i, name) for i, name in enumerate(head.names) if naming.search(name)] if head else []
            head = head if named else None
            continue
        for column, name in named:
            start, end = row[column]
            yield Named(name, at + start, at + end)


def _lines_of(text: str) -> Iterator[tuple[str, int]]:
    """Lines and where they begin, without those that only rule a table off."""
    at = 0
    for line in text.split("\n"):
        if not line or not _RULE.fullmatch(line):
            yield line, at
        at += len(line) + 1


def _is_of_one_table(line: str, following: str) -> bool:
    """Whether a line and the next may have as many cells, by a look that costs next to nothing. Quotes may hold more
    of the signs."""
    return any(0 < line.count(part) <= following.count(part) for part in _PARTS[:-1]) or (
        _PARTS[-1] in line and _PARTS[-1] in following
    )
