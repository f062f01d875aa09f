"""Writes values out behind a name that stands away from them: at the head of a column, before a list.

Whatever reads `PESEL: 44051401359` then reads tables and lists too.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from router.privacy.normalise import Span, View
from router.privacy.recognisers.cards import CARD_NAMED
from router.privacy.recognisers.chinese import ID_NAMED
from router.privacy.recognisers.national_ids import NAMES
from router.privacy.recognisers.nearby import ANY_IDENTITY

_MIN_CHARS, _MAX_CHARS, _MAX_NAME_CHARS = 4, 512, 32
_PHONE = (
    r"\btel\b|telef|phone|mobil|m[óo]vil|celular|cellulare|\bfax\b|whatsapp|handy|t[ée]l[ée]phone|puhelin"
    r"|тел|мoб|电话|電話|手机|手機|携帯|전화|휴대폰"
)
_CREDENTIAL = (
    r"pass(?:w|code|phrase)|\bpass\b|\bpwd?\b|kennwort|mot de passe|\bmdp\b|contrase|clave|senha|wachtwoord|senord"
    r"|salasana|has[łl]o|heslo|jelsz|secret|token|api[_ -]?key|access[_ -]?key|\bpin\b|парoл|密码|密碼|口令|パスワ"
    r"|비밀번호|암호"
)
_SSN = r"ssns?\b|social[ _-]?sec"
NAMING = "|".join((ANY_IDENTITY, CARD_NAMED, *ID_NAMED, *NAMES, _PHONE, _CREDENTIAL, _SSN))
"""Words that say what values are (a pattern for `nearby.words`)."""

_BLANK = re.compile(r"\s")


class Named(NamedTuple):
    """A value at `[start, end)` of a text, and what names it."""

    name: str
    start: int
    end: int


class _Value(NamedTuple):
    """Where a value is written out: from where with its name, from where without, and where it stands in the text."""

    begin: int
    start: int
    end: int
    stands: int


def written_out(view: View, values: Iterable[Named]) -> Iterator[View]:
    """One view of all `values`, a paragraph each; none where there are none. One that is too short or too long to be
    what a name says is left out."""
    out: list[str] = []
    written: list[_Value] = []
    at = 0
    for name, start, end in values:
        if not _MIN_CHARS <= end - start <= _MAX_CHARS:
            continue
        label = f"{name[-_MAX_NAME_CHARS:]}: "
        begin, at = at, at + len(label)
        written.append(_Value(begin, at, at + end - start, start))
        out.append(f"{label}{view.text[start:end]}\n\n")
        at += end - start + 2
    if written:
        yield View("".join(out), _Back(view, written))


class _Back:
    """Maps spans of what was written out to the text that it stands in."""

    def __init__(self, parent: View, written: list[_Value]) -> None:
        self._parent = parent
        self._written = written

    def __call__(self, span: Span) -> Span:
        first, last = self._at(span[0]), self._at(span[1] - 1)
        start = first.stands + max(0, span[0] - first.start)
        end = last.stands + min(span[1], last.end) - last.start
        if end <= start:  # the name alone: it stands for what it names
            end = last.stands + last.end - last.start
        if first is last:
            start, end = self._whole_word(first, start, end)
        return self._parent.to_sent((start, end))

    def _whole_word(self, value: _Value, start: int, end: int) -> Span:
        """A value without blanks is found as a whole: it was parted from others by what is around it, so that a comma
        or quote inside it ends nothing."""
        begin, stop = value.stands, value.stands + value.end - value.start
        return (start, end) if _BLANK.search(self._parent.text, begin, stop) else (begin, stop)

    def _at(self, offset: int) -> _Value:
        return self._written[bisect_right(self._written, offset, key=lambda value: value.begin) - 1]
