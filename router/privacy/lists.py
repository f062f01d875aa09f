"""Reads each item of a list beside what the list is called.

`{"phones": ["…", "…"]}`, `Passwords:` above lines that begin with a dash, `call 0171 … or 0151 …`: only the first
item stands near the word that says what all of them are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from router.privacy.normalise import View
from router.privacy.recognisers.nearby import words
from router.privacy.written_out import NAMING, Named, written_out

_BRACKETED = re.compile(r"\\?[\"'`)*\]]{0,3}\s{0,4}(?::|=>?)\s{0,4}\[(?P<items>[^\[\]]*+)\]")
_BULLETED = re.compile(
    r"[*_)]{0,3}[:：][*_ \t]{0,4}\r?\n(?:[ \t]{0,8}\r?\n)?"
    r"(?P<items>(?:[ \t]{0,32}(?:[-*+.]|[0-9]{1,3}[.)])[ \t]{1,4}[^\n]{1,512}+(?:\n|\Z))+)"
)
_NUMBER = r"[+(]?[0-9]{1,19}+(?:[ ()./-]{1,2}[0-9]{1,19}+){0,6}+"
_IN_A_ROW = re.compile(
    rf"(?<![0-9A-Za-z])(?<![0-9][ ()./-])(?P<items>{_NUMBER}"
    r"(?:(?:[ \t]{0,2}[,;&、，；][ \t\n]{0,2}|[ \t](?:and|or|und|oder|et|ou|y|o|e|и|или)[ \t]|[和或及])"
    rf"{_NUMBER})+)"
)
_ITEM = re.compile(
    r"(?:\\?[\"'](?P<key>[^\"'\\\n]{0,40})\\?[\"']\s{0,4}:\s{0,4})?"
    r"(?:\\?\"(?P<double>[^\"\\\n]*)\\?\"|\\?'(?P<single>[^'\\\n]*)\\?'|(?P<bare>[^\s,\"'{}\\:][^,\n\"'{}\\]*))"
)
_BULLET = re.compile(
    r"[ \t]*(?:[-*+.]|[0-9]{1,3}[.)])[ \t]+[*_`\"']{0,3}(?P<item>[^\n]*?)[*_`\"',;]{0,3}[ \t\r]*(?:\n|\Z)"
)
_EACH_NUMBER = re.compile(_NUMBER)
_VALUE_KEYS = frozenset({"value", "val", "v", "number", "num", "no", "nr", "data", "content", "text", "raw", "id"})
"""Keys of the objects in a list under which stands what the list is called."""
_NAME = re.compile(r"[^{}\[\],;\n\"'`]{2,40}\Z")
_NAME_CHARS = 40
_WORD_HEAD = re.compile(r"[0-9A-Za-z_.-]{1,40}\Z")
TRIGGERS = (
    rb"[:=>]\s{0,4}\[",
    rb"[:?][*_ \t]{0,4}\r?\n[ \t]{0,8}(?:\r?\n[ \t]{0,32})?(?:[-*+.?]|[0-9]{1,3}[.)])[ \t]",
    rb"[0-9]{2}(?:[ \t]?[,;&?][ \t\n]?|[ \t](?:and|or|und|oder|et|ou|y|o|e|\?{1,3}|o\?)[ \t])[+(]?[0-9]{2}",
)


def named_items(view: View) -> Iterator[View]:
    """One view of all items of lists whose name says what they are, a paragraph each."""
    yield from written_out(view, _items_in(view.text))


def _items_in(text: str) -> Iterator[Named]:
    names = _Names(text)
    for match in _BRACKETED.finditer(text):
        if (name := names.before(match.start())) is not None:
            for item in _ITEM.finditer(text, *match.span("items")):
                if item["key"] is None or item["key"].lower() in _VALUE_KEYS:
                    yield Named(name, *item.span(item.lastgroup or 0))
    for match in _BULLETED.finditer(text):
        if (name := names.before(match.start())) is not None:
            for item in _BULLET.finditer(text, *match.span("items")):
                yield Named(name, *item.span("item"))
    for match in _IN_A_ROW.finditer(text):
        if (name := names.before(match.start())) is not None:
            for item in _EACH_NUMBER.finditer(text, *match.span("items")):
                yield Named(name, *item.span())


class _Names:
    """What lists of one text are called. Each name is looked at once: most keys of a text come again."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._known: dict[str, str | None] = {}

    def before(self, at: int) -> str | None:
        """What stands before `at` on its line, from the first word on that says what values are."""
        before = _NAME.search(self._text, max(0, at - _NAME_CHARS), at)
        if before is None:
            return None
        if before.group() not in self._known:
            self._known[before.group()] = _named_by(before.group())
        return self._known[before.group()]


def _named_by(words_before: str) -> str | None:
    word = words(NAMING).search(words_before)
    if word is None:
        return None
    head = _WORD_HEAD.search(words_before, 0, word.start() + 1)
    return words_before[head.start() if head else word.start() :].replace("*", "").strip(" :=_")
