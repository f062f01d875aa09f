"""Puts a number together that is wrapped over lines, where a word near it says what it is.

`ID: 110105⏎19491231⏎002X` is one number to a reader. Lines of digits without a name are a column, and are left as
they are: some two or three of them always add up to something that passes a check.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from router.privacy.normalise import Span, View, replaced_view
from router.privacy.recognisers.cards import CARD_NAMED
from router.privacy.recognisers.chinese import ID_NAMED
from router.privacy.recognisers.national_ids import NAMES
from router.privacy.recognisers.nearby import ANY_IDENTITY, words

_MIN_DIGITS, _MAX_DIGITS = 9, 19
_END = r"[ \t]{0,8}\r?\n[ \t>|]{0,8}"
"""The end of a line, and what stands before the text of the next one in a mail or a table."""
_PIECE = r"[0-9]{1,18}+(?:[ .\-][0-9]{1,18}+){0,5}+"
_BLOCK = re.compile(
    rf"(?<![0-9A-Za-z])(?<![0-9][ .\-]){_PIECE}(?:{_END}{_PIECE}){{1,7}}+(?:[Xx]|{_END}[Xx])?"
    rf"(?![0-9A-Za-z])(?!{_END}[0-9])"
)
_COMES_BEFORE = re.compile(rf"[0-9]{_END}\Z")
_JOINTS = re.compile(rf"(?<=[0-9])(?:{_END}|[ .\-])(?=[0-9Xx])")
_NO_LETTER = re.compile(r"[^\w\s]|[\d_]")
_CUT_WORD = re.compile(r"\A[0-9A-Za-z]+")
_NAMED_BY = "|".join((ANY_IDENTITY, CARD_NAMED, *ID_NAMED, *NAMES))
_BEFORE_CHARS, _AFTER_CHARS = 48, 24
TRIGGERS = (rb"[0-9][ \t]{0,8}\r?\n[ \t>|]{0,8}[0-9Xx]",)


def joined(view: View) -> Iterator[View]:
    """A view of each such number in one piece, between the words around it."""
    for match in _BLOCK.finditer(view.text):
        start, end = match.span()
        digits = sum(map(str.isdigit, match.group()))
        if not _MIN_DIGITS <= digits <= _MAX_DIGITS or _COMES_BEFORE.search(view.text[max(0, start - 20) : start]):
            continue
        before = view.text[max(0, start - _BEFORE_CHARS) : start]
        if start > _BEFORE_CHARS:
            before = _CUT_WORD.sub("", before)
        after = view.text[end : end + _AFTER_CHARS]
        if words(_NAMED_BY).search(before) or words(_NAMED_BY).search(after):
            yield replaced_view(_between(view, before, match, after), _JOINTS, lambda joint: "")


def _between(view: View, before: str, block: re.Match[str], after: str) -> View:
    """The block among the words around it, of which nothing but letters is left: what else stands there was read."""
    offset = block.start() - len(before)
    text = _NO_LETTER.sub(" ", before) + block.group() + _NO_LETTER.sub(" ", after)

    def to_sent(span: Span) -> Span:
        return view.to_sent((span[0] + offset, span[1] + offset))

    return View(text, to_sent)
