"""Folds a text to the form that recognisers read, and maps every span back to the text as it was sent.

Compatibility forms (full width, circled, mathematical) become their plain letters and digits, digits of all
scripts become ASCII, exotic spaces and dashes become ` ` and `-`, letters of other scripts that look like `o` and
`I` become those, and what is not seen (zero-width, bidirectional controls, combining marks) is dropped. Text
without such characters is its own folded form, so ordinary traffic pays one search.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

Span = tuple[int, int]
"""Character offsets `[start, end)`."""

_FOLDING = (
    *(range(0x80, 0x3400), range(0x4DC0, 0x4E00), range(0xA000, 0xAC00), range(0xD7A4, 0xD800)),
    *(range(0xF900, 0x20000), range(0x2F800, 0x30000), range(0xE0000, 0xE0200)),
)
"""Code points that can need folding: all planes with letters, and the tags and variation selectors. Unified ideographs,
Hangul syllables and the areas for private use are their own compatibility forms in every version of Unicode."""
_FOLDING_CATEGORIES = frozenset({"Cf", "Mn", "Me", "Nd", "No", "Pd", "Zs", "Zl", "Zp"})
_TAG = re.compile("[\U000e0020-\U000e007e]")
"""Characters that nobody sees, each of which stands for one of ASCII: a model reads them."""
_TAGS_BEGIN = 0xE0000
_LATIN = "\u00ff"
_ASTRAL = "\U00010000"
_ASTRAL_CHAR = re.compile("[\U00010000-\U0010ffff]")
_DROPPED_CATEGORIES = frozenset({"Cf", "Mn", "Me"})
_INVISIBLE_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\u2800")
_DASHES = frozenset("\u2212\u2043\u02d7\u06d4\u30fc\u2500\u2501")
_DOTS = frozenset("\u00b7\u2022\u2027\u2219\u22c5\u30fb")
_LOOK_ALIKES = {"О": "O", "о": "o", "Ο": "O", "ο": "o", "І": "I", "Ӏ": "I", "ӏ": "l", "Ι": "I", "ǀ": "|", "∣": "|"}
_OTHERS = _INVISIBLE_LETTERS | _DASHES | _DOTS | _LOOK_ALIKES.keys()
_LEFT_ALONE = frozenset("，！？；：（）、。「」")
"""Punctuation of ordinary East Asian text that no recogniser asks for: folding it would only cost time."""


class View(NamedTuple):
    """A text as recognisers read it. `to_sent` maps one of its spans to the text as it was sent."""

    text: str
    to_sent: Callable[[Span], Span]


def plain_view(text: str) -> View:
    """The text as it is."""
    return View(text, _same)


def replaced_view(parent: View, pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str]) -> View:
    """`parent` with every match of `pattern` replaced; any part of a replacement maps to the whole match."""
    return View(pattern.sub(replacement, parent.text), _Replaced(parent, pattern, replacement))


def within(outer: View, inner: View) -> View:
    """`inner`, a view of the text of `outer`, with spans that map to what `outer` is a view of."""
    return View(inner.text, lambda span: outer.to_sent(inner.to_sent(span)))


class _Folds(dict[str, str]):
    """What a character becomes, found out when it is first met."""

    def __missing__(self, char: str) -> str:
        folded = self[char] = _fold(char)
        return folded


class Folder:
    """Folds texts. Building one reads the Unicode tables once."""

    def __init__(self) -> None:
        self._folds = _Folds()
        foldable = _foldable()
        # Text of one byte a character has few that fold, and is told by trying: most European text is such.
        self._foldable_bytes = "".join(char for char in foldable if char <= _LATIN).encode("latin-1")
        self._foldable_latin = re.compile(f"[{_ranges(ord(char) for char in foldable if char <= _LATIN)}]")
        # Two patterns: a character class is only a table look-up while it stays within one plane.
        self._foldable = re.compile(f"[{_ranges(ord(char) for char in foldable if char < _ASTRAL)}]")

    def view(self, text: str) -> View:
        """The folded view of `text`; its spans map to `text`."""
        view = plain_view(text)
        if text.isascii():
            return view
        if (encoded := _as_latin(text)) is not None:
            # To delete what folds and compare lengths is ten times as fast as to look for it.
            if len(encoded.translate(None, self._foldable_bytes)) == len(encoded):
                return view
            return replaced_view(view, self._foldable_latin, self._fold_of)
        for pattern in (self._foldable, _ASTRAL_CHAR):
            if pattern.search(view.text):
                view = replaced_view(view, pattern, self._fold_of)
        return view

    def views(self, text: str) -> Iterator[View]:
        """The folded view of `text`, and one in which tag characters are what they stand for, where there are any."""
        view = self.view(text)
        yield view
        if view.text is not text and _TAG.search(text):
            spelt = replaced_view(plain_view(text), _TAG, lambda tag: chr(ord(tag[0]) - _TAGS_BEGIN))
            yield within(spelt, self.view(spelt.text))

    def _fold_of(self, match: re.Match[str]) -> str:
        return self._folds[match[0]]


class _Replaced:
    """Maps spans back over replacements; walks them only when the first finding asks."""

    def __init__(self, parent: View, pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str]) -> None:
        self._parent = parent
        self._pattern = pattern
        self._replacement = replacement
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __call__(self, span: Span) -> Span:
        if not self._starts:
            self._walk()
        return self._parent.to_sent((self._starts[span[0]], self._ends[span[1] - 1]))

    def _walk(self) -> None:
        behind = 0
        for match in self._pattern.finditer(self._parent.text):
            start, end = match.span()
            self._keep(behind, start)
            length = len(self._replacement(match))
            self._starts.extend([start] * length)
            self._ends.extend([end] * length)
            behind = end
        self._keep(behind, len(self._parent.text))

    def _keep(self, start: int, end: int) -> None:
        self._starts.extend(range(start, end))
        self._ends.extend(range(start + 1, end + 1))


_ASCII_OF_LATIN = bytes(code if code < 0x80 else ord("?") for code in range(256))


def ascii_of(text: str) -> bytes:
    """`text` with `?` for any other character: one byte a character, so that one alphabet serves all scripts."""
    if text.isascii():
        return text.encode()
    encoded = _as_latin(text)
    return text.encode("ascii", "replace") if encoded is None else encoded.translate(_ASCII_OF_LATIN)


def is_latin(text: str) -> bool:
    """Whether every character of `text` takes one byte, as in most European languages."""
    return _as_latin(text) is not None


def _as_latin(text: str) -> bytes | None:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return None


def _same(span: Span) -> Span:
    return span


def _ranges(codes: Iterable[int]) -> str:
    """Ascending code points as the inside of a character class."""
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"\\u{low:04x}-\\u{high:04x}" for low, high in ranges)


def _foldable() -> list[str]:
    """Characters that may fold, in order: those whose category says so, and those with another compatibility form."""
    chars = [chr(code) for codes in _FOLDING for code in codes]
    # Nothing composes over the end of a line, so all of them are normalised at once.
    forms = unicodedata.normalize("NFKC", "\n".join(chars)).split("\n")
    categories = map(unicodedata.category, chars)
    return [
        char
        for char, form, category in zip(chars, forms, categories, strict=True)
        if (form != char or category in _FOLDING_CATEGORIES or char in _OTHERS) and char not in _LEFT_ALONE
    ]


def _fold(char: str) -> str:
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
    if char in _LEFT_ALONE:
        return char
    if char in _LOOK_ALIKES:
        return _LOOK_ALIKES[char]
    return "".join(c for c in unicodedata.normalize("NFKC", char) if unicodedata.category(c) not in _DROPPED_CATEGORIES)
