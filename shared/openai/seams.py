"""Puts texts one after another as a reader would, so that what is cut over them is whole again.

What stands beside a cut must not spoil it: `hello`, `120174-`, `3399` say `hello 120174-3399`, and neither
`hello120174-3399` nor `hello 120174- 3399`. So texts are read with blanks between them, without, and neighbour by
neighbour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

SEAM_CHARS = 256
"""Characters kept on each side where texts are joined: more than anything that could be cut over a seam."""
GLUED_CHARS = 64
"""Characters kept on each side of a seam between messages without a blank, beside whole words."""
MAX_WORD_CHARS = 16 * 1024
"""Characters of one word that are kept at a seam without a blank: a signed token has no other bound."""
_GAP = "\x1e\x1e\x1e\x1e"
"""Stands for the middle of a long text inside a joined one; no finding reaches across it."""
_WORD_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_-."
_NUMBER_CHARS = frozenset("0123456789-./")
_SENTENCE_ENDS = frozenset(".!?,;:…。！？，；：")
"""Signs with which no word goes on, but for a number with points."""


class Joined(NamedTuple):
    """A text made of several, and the offsets where a next one begins."""

    text: str
    seams: tuple[int, ...]


def readings(texts: Sequence[str], side_chars: int = SEAM_CHARS) -> Iterator[Joined]:
    """Each way in which `texts` may be one text. Of long ones, `side_chars` characters a side are kept where no blank
    stands between them."""
    texts = [text for text in texts if text]
    if len(texts) < 2:
        return
    yield joined(texts, " ")
    yield joined(texts, "", side_chars)
    if len(texts) > 2:
        yield from _neighbours(texts)
        yield from _number_in_pieces(texts, side_chars)


def joined(texts: Sequence[str], separator: str | Sequence[str], side_chars: int = SEAM_CHARS) -> Joined:
    """The texts as one, with the separator between all of them, or one for each pair. The middle of a long text is left
    out: it is read by itself."""
    between = [separator] * (len(texts) - 1) if isinstance(separator, str) else separator
    ends = [_ends(text, side_chars, whole_words=separator != " ") for text in texts]
    pieces, seams, at = [ends[0]], [], len(ends[0])
    for sign, text in zip(between, ends[1:], strict=True):
        at += len(sign)
        seams.append(at)
        pieces += (sign, text)
        at += len(text)
    return Joined("".join(pieces), tuple(seams))


def _neighbours(texts: Sequence[str]) -> Iterator[Joined]:
    """The end of each text with the beginning of the next, where a word may go on, and nothing beside them."""
    pieces, seams, at = [], [], 0
    for left, right in pairwise(texts):
        if _may_go_on(left, right):
            tail, head = _tail(left, GLUED_CHARS), _head(right, GLUED_CHARS)
            seams.append(at + len(tail))
            pieces.append(f"{tail}{head}{_GAP}")
            at += len(pieces[-1])
    if pieces:
        yield Joined("".join(pieces), tuple(seams))


def _may_go_on(left: str, right: str) -> bool:
    """Whether the last word of one text may end in the next."""
    if left[-1].isspace() or right[0].isspace():
        return False
    return left[-1] not in _SENTENCE_ENDS or (left[-2:-1].isdigit() and right[0].isdigit())


def _number_in_pieces(texts: Sequence[str], side_chars: int) -> Iterator[Joined]:
    """The texts with blanks but where a number goes on; only where one may consist of three texts or more."""
    goes_on = [left[-1] in _NUMBER_CHARS and right[0] in _NUMBER_CHARS for left, right in pairwise(texts)]
    if not all(goes_on) and any(first and second for first, second in pairwise(goes_on)):
        yield joined(texts, ["" if each else " " for each in goes_on], side_chars)


def _ends(text: str, side_chars: int, *, whole_words: bool) -> str:
    """`text` without its middle. Where a word may go on over the seam, it is kept whole."""
    if len(text) <= 2 * side_chars:
        return text
    head, tail = text[:side_chars], text[-side_chars:]
    if whole_words:
        head, tail = _head(text, side_chars), _tail(text, side_chars)
    return text if len(text) <= len(head) + len(tail) else f"{head}{_GAP}{tail}"


def _head(text: str, chars: int) -> str:
    """The first characters of `text`, its first word as a whole. What is left of a word that is cut is left out too:
    half of a long id can look like another."""
    first = text[:MAX_WORD_CHARS]
    size = max(chars, len(first) - len(first.lstrip(_WORD_CHARS)))
    head = text[:size]
    is_cut = size < len(text) and text[size] in _WORD_CHARS
    return head.rstrip(_WORD_CHARS) or head if is_cut else head


def _tail(text: str, chars: int) -> str:
    """The last characters of `text`, as `_head` has the first."""
    last = text[-MAX_WORD_CHARS:]
    size = max(chars, len(last) - len(last.rstrip(_WORD_CHARS)))
    tail = text[-size:]
    return tail.lstrip(_WORD_CHARS) or tail if size < len(text) and text[-size - 1] in _WORD_CHARS else tail
