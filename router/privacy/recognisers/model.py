"""A recogniser as a table entry: cheap triggers for the one-pass database, and an exact finder behind them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from router.privacy.normalise import Span
from shared.privacy import PrivacyClass

Tick = Callable[[], None]
"""Called once a candidate; raises when the scan must end."""

Finder = Callable[[str, Tick], Iterator[Span]]
"""Yields the spans of real findings in a folded text. Runs in time linear in the text for any input: bounded
repeats over disjoint character sets, never a repeat inside a repeat over the same characters."""

_UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_UUID_CHARS = 36


@dataclass(frozen=True, slots=True)
class Recogniser:
    """`triggers` are byte patterns, one of which fires wherever `find` could succeed. They are matched against the
    folded text in ASCII, where `?` stands for any other character; without any, `find` reads every text. `score` says
    how sure a finding is (0 to 1)."""

    kind: str
    privacy_class: PrivacyClass
    triggers: tuple[bytes, ...]
    find: Finder
    score: float = 1.0


def by_pattern(pattern: re.Pattern[str]) -> Finder:
    """A finder for what one regular expression says in full; a group named `value` narrows the span."""
    group = "value" if "value" in pattern.groupindex else 0

    def find(text: str, tick: Tick) -> Iterator[Span]:
        for match in pattern.finditer(text):
            tick()
            yield match.span(group)

    return find


def inside_code(text: str, start: int, end: int) -> bool:
    """Whether the digits at `[start, end)` are part of a longer code such as a hash or an id: letters and digits
    that touch them and hold further digits. Plain words may touch (`card4111…`), as may any other script."""
    left = start
    while left > 0 and start - left < 64 and _is_code_char(text[left - 1]):
        left -= 1
    right = end
    while right < len(text) and right - end < 64 and _is_code_char(text[right]):
        right += 1
    return any("0" <= c <= "9" for c in text[left:start]) or any("0" <= c <= "9" for c in text[end:right])


def inside_uuid(text: str, start: int, end: int) -> bool:
    """Whether `[start, end)` overlaps a UUID."""
    around = slice(max(0, start - _UUID_CHARS), end + _UUID_CHARS)
    return any(
        around.start + match.start() < end and around.start + match.end() > start
        for match in _UUID.finditer(text[around])
    )


def _is_code_char(char: str) -> bool:
    return char.isascii() and char.isalnum()
