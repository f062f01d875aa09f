"""Reads the cells of a table beside the head of their column, where that says what they are.

`name,PESEL,password⏎Jan,44051401359,hunter2` says of every row what only its first line names. Each such cell is
written out behind its name, so that whatever reads `PESEL: 44051401359` reads a table too.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from router.privacy.normalise import Span, View
from router.privacy.recognisers.cards import CARD_NAMED
from router.privacy.recognisers.chinese import ID_NAMED
from router.privacy.recognisers.column_heads import Head, head_of
from router.privacy.recognisers.national_ids import NAMES
from router.privacy.recognisers.nearby import ANY_IDENTITY, triggers_of, words

_MIN_CELL_CHARS, _MAX_CELL_CHARS, _MAX_NAME_CHARS = 4, 512, 32
_PHONE = (
    r"\btel\b|telef|phone|mobil|m[óo]vil|celular|cellulare|\bfax\b|whatsapp|handy|t[ée]l[ée]phone|puhelin"
    r"|тел|мoб|电话|電話|手机|手機|携帯|전화|휴대폰"
)
_CREDENTIAL = (
    r"pass(?:w|code|phrase)|\bpass\b|\bpwd?\b|kennwort|mot de passe|\bmdp\b|contrase|clave|senha|wachtwoord|senord"
    r"|salasana|has[łl]o|heslo|jelsz|secret|token|api[_ -]?key|access[_ -]?key|\bpin\b|парoл|密码|密碼|口令|パスワ"
    r"|비밀번호|암호"
)
_SSN = r"\bssn\b|social[ _-]?sec"
_NAMING = "|".join((ANY_IDENTITY, CARD_NAMED, *ID_NAMED, *NAMES, _PHONE, _CREDENTIAL, _SSN))
TRIGGERS = (*triggers_of(_NAMING), rb"\?-?[\"' ]{0,2}(?:[,;|\t]| {2})")
"""A name of another script is seen by the sign behind it."""
_RULE = re.compile(r"[-+=|: \r]+")
_PARTS = ("\t", "|", ";", ",", "  ")


class _Cell(NamedTuple):
    """Where a cell is written out: from where with its name, from where without, and where it stands in the table."""

    begin: int
    start: int
    end: int
    stands: int


def named_cells(view: View) -> Iterator[View]:
    """One view of all cells whose columns a head names, a paragraph each."""
    if "\n" not in view.text:
        return
    out: list[str] = []
    cells: list[_Cell] = []
    at = 0
    for name, start, end in _cells_in(view.text):
        begin, at = at, at + len(name) + 2
        cells.append(_Cell(begin, at, at + end - start, start))
        out.append(f"{name}: {view.text[start:end]}\n\n")
        at += end - start + 2
    if cells:
        yield View("".join(out), _Back(view, cells))


class _Back:
    """Maps spans of the cells that were written out to the text that they stand in."""

    def __init__(self, parent: View, cells: list[_Cell]) -> None:
        self._parent = parent
        self._cells = cells

    def __call__(self, span: Span) -> Span:
        first, last = self._at(span[0]), self._at(span[1] - 1)
        start = first.stands + max(0, span[0] - first.start)
        end = last.stands + min(span[1], last.end) - last.start
        if end <= start:  # the name alone: it stands for what it names
            end = last.stands + last.end - last.start
        return self._parent.to_sent((start, end))

    def _at(self, offset: int) -> _Cell:
        return self._cells[bisect_right(self._cells, offset, key=lambda cell: cell.begin) - 1]


def _cells_in(text: str) -> Iterator[tuple[str, int, int]]:
    """Name and span of each cell in a column that a head names."""
    naming = words(_NAMING)
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
            if _MIN_CELL_CHARS <= end - start <= _MAX_CELL_CHARS:
                yield name[-_MAX_NAME_CHARS:], at + start, at + end


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
