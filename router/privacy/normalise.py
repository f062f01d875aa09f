"""Folds a text to the form that recognisers read, and maps every span back to the text as it was sent.

Compatibility forms (full width, circled, mathematical) become their plain letters and digits, digits of all
scripts become ASCII, exotic spaces and dashes become ` ` and `-`, letters of other scripts that look like `o` and
`I` become those, and what is not seen (zero-width, bidirectional controls, combining marks) is dropped. ASCII text
is its own folded form, so ordinary traffic pays nothing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

Span = tuple[int, int]
"""Character offsets `[start, end)`."""

_KEPT_FOLDS = 16_384
"""Folds remembered: more than any real text uses, and a bound on what a hostile one can make us hold."""
_DROPPED_CATEGORIES = frozenset({"Cf", "Mn", "Me"})
_INVISIBLE_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\u2800")
_DASHES = frozenset("\u2212\u2043\u02d7\u06d4\u30fc\u2500\u2501")
_DOTS = frozenset("\u00b7\u2022\u2027\u2219\u22c5\u30fb")
_LOOK_ALIKES = {"О": "O", "о": "o", "Ο": "O", "ο": "o", "І": "I", "Ӏ": "I", "ӏ": "l", "Ι": "I", "ǀ": "|", "∣": "|"}


@dataclass(frozen=True, slots=True)
class View:
    """A text as recognisers read it. `to_sent` maps one of its spans to the text as it was sent."""

    text: str
    to_sent: Callable[[Span], Span]


class Folder:
    """Folds texts; remembers the fold of each character it has met."""

    def __init__(self) -> None:
        self._folds = _Folds()

    def view(self, text: str) -> View:
        """The folded view of `text`; its spans map to `text`."""
        if text.isascii():
            return View(text, _same)
        return View(text.translate(self._folds), _Offsets(text, self._folds))


class _Folds(dict[int, str]):
    """Fold per code point, filled on first use."""

    def __missing__(self, code: int) -> str:
        folded = _fold(chr(code))
        if len(self) < _KEPT_FOLDS:
            self[code] = folded
        return folded


class _Offsets:
    """Maps spans of a folded text back; walks the text only when the first finding asks."""

    def __init__(self, text: str, folds: _Folds) -> None:
        self._text = text
        self._folds = folds
        self._sent: list[int] | None = None

    def __call__(self, span: Span) -> Span:
        if self._sent is None:
            folds = self._folds
            self._sent = [at for at, char in enumerate(self._text) for _ in folds[ord(char)]]
        return self._sent[span[0]], self._sent[span[1] - 1] + 1


def _same(span: Span) -> Span:
    return span


def _fold(char: str) -> str:
    if char.isascii():
        return char
    category = unicodedata.category(char)
    if category in _DROPPED_CATEGORIES or char in _INVISIBLE_LETTERS:
        return ""
    if category == "Zs":
        return " "
    if category in ("Zl", "Zp"):
        return "\n"
    if category == "Pd" or char in _DASHES:
        return "-"
    if char in _DOTS:
        return "."
    digit = unicodedata.digit(char, None)
    if digit is not None:
        return str(digit)
    if char in _LOOK_ALIKES:
        return _LOOK_ALIKES[char]
    return "".join(c for c in unicodedata.normalize("NFKC", char) if unicodedata.category(c) not in _DROPPED_CATEGORIES)
