"""Scans one text of an answer while it comes, and replaces what is found before any of it goes on.

A tail is held back, so that a finding cut over two pieces is still one: the last characters, and the word that has
not ended yet. Both are bounded; what outgrows the bound as a finding is replaced, and its rest dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from router.privacy.classify import TextScanner
from router.privacy.masking import disjoint
from shared.errors import StreamBroken
from shared.openai.text import TextPosition

TAIL_CHARS = 64
"""More than any number is long in any usual grouping."""
CONTEXT_CHARS = 96
"""Characters that went on already and are still read: words before a number say what it is."""
MAX_HELD_CHARS = 16 * 1024
_BREAK = re.compile(r"[\s\u0080-\U0010ffff]")
_WORD = re.compile(r"[^\s\u0080-\U0010ffff]*\Z")
_KEY_END = re.compile(r"-----END[^\n]{0,80}")
_PRIVATE_KEY = "private_key"


class AnswerScan:
    """State of one text. `on_found` is told each kind that was replaced."""

    def __init__(self, scanner: TextScanner, on_found: Callable[[str], None]) -> None:
        self._scanner = scanner
        self._on_found = on_found
        self._behind = ""
        self._held = ""
        self._dropping: re.Pattern[str] | None = None

    def feed(self, piece: str) -> str:
        """What can go on now.

        Raises:
            StreamBroken: the text could not be scanned.
        """
        self._held += piece
        return self._released(final=False)

    def end(self) -> str:
        """The rest of the text, scanned."""
        return self._released(final=True)

    def _released(self, *, final: bool) -> str:
        if not self._caught_up():
            return ""
        limit = len(self._held) if final else self._limit()
        if limit <= 0:
            return ""
        out, cut = [], 0
        for kind, start, end in self._found():
            if start >= limit:
                break
            grows = end > limit or self._goes_on(kind, start, end)
            if grows and not final and len(self._held) - start <= MAX_HELD_CHARS:
                limit = start
                break
            out += [self._held[cut:start], f"[{kind.upper()}]"]
            cut = end
            self._on_found(kind)
            if grows:
                self._dropping = _KEY_END if kind == _PRIVATE_KEY else _BREAK
                limit = len(self._held)
                break
        out.append(self._held[cut:limit] if self._dropping is None else "")
        self._behind = (self._behind + self._held[:limit])[-CONTEXT_CHARS:]
        self._held = self._held[limit:]
        return "".join(out)

    def _caught_up(self) -> bool:
        """Drop the rest of a finding that was replaced already; whether it is over."""
        if self._dropping is None:
            return True
        end = self._dropping.search(self._held)
        if end is None:
            self._held = self._held[-len("-----END") :]
            return False
        self._held = self._held[end.end() if self._dropping is _KEY_END else end.start() :]
        self._dropping = None
        return True

    def _goes_on(self, kind: str, start: int, end: int) -> bool:
        """Whether a finding is only the beginning of what must not go on."""
        if kind == _PRIVATE_KEY:
            return _KEY_END.search(self._held, start, end) is None
        return end < len(self._held) and self._held[end - 1 : end + 1].isalnum() and self._held[end].isascii()

    def _limit(self) -> int:
        """How much may go on: not the last characters, and no part of a word that has not ended."""
        cut = len(self._held) - TAIL_CHARS
        word = _WORD.search(self._held, max(0, len(self._held) - MAX_HELD_CHARS))
        return min(cut, word.start()) if word and word.start() > 0 else cut if len(self._held) > MAX_HELD_CHARS else 0

    def _found(self) -> list[tuple[str, int, int]]:
        """Kinds and spans in what is held."""
        found = self._scanner.scan([TextPosition("answer", self._behind + self._held)])
        if not found.complete:
            raise StreamBroken("The answer could not be scanned and was cut.")
        offset = len(self._behind)
        spans = ((kind, start - offset, end - offset) for kind, start, end in disjoint(found.entities))
        return [(kind, max(0, start), end) for kind, start, end in spans if end > 0]
