"""One pass over a text that says which of many patterns occur in it: the cheap question before the exact ones."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import hyperscan

_FLAGS = hyperscan.HS_FLAG_SINGLEMATCH | hyperscan.HS_FLAG_DOTALL | hyperscan.HS_FLAG_ALLOWEMPTY


class PatternDatabase:
    """A compiled set of patterns; safe to ask from many threads (the engine releases the interpreter lock)."""

    def __init__(self, patterns: Sequence[tuple[int, bytes]]) -> None:
        """`patterns` are pairs of a number and a byte pattern; several may share a number."""
        self._numbers = [number for number, _ in patterns]
        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        self._database.compile(
            expressions=[pattern for _, pattern in patterns],
            ids=list(range(len(patterns))),
            elements=len(patterns),
            flags=[_FLAGS] * len(patterns),
        )
        self._local = threading.local()

    def numbers_in(self, data: bytes) -> list[int]:
        """The numbers whose patterns occur in `data`, in ascending order.

        Raises:
            hyperscan.error: the engine could not scan.
        """
        found: set[int] = set()

        def note(pattern: int, start: int, end: int, flags: int, context: object) -> None:
            found.add(self._numbers[pattern])

        self._database.scan(data, match_event_handler=note, scratch=self._scratch())
        return sorted(found)

    def _scratch(self) -> hyperscan.Scratch:
        """Working memory of this thread: the engine refuses to share it between two scans."""
        scratch: hyperscan.Scratch | None = getattr(self._local, "scratch", None)
        if scratch is None:
            scratch = self._local.scratch = hyperscan.Scratch(self._database)
        return scratch
