"""One pass over a text that says which of many patterns occur in it: the cheap question before the exact ones.

Two engines can answer it, both in time linear in the text: Hyperscan, and RE2 on processors and systems for which
Hyperscan is not built.
"""

from __future__ import annotations

import importlib.util
import platform
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from router.privacy.kept_patterns import KeptPatterns
from shared.errors import SettingsError

Patterns = Sequence[tuple[int, bytes]]
_RE2_MEMORY_BYTES = 256 * 1024 * 1024


class PatternDatabase(Protocol):
    """A compiled set of patterns; safe to ask from many threads."""

    def numbers_in(self, data: bytes) -> list[int]:
        """The numbers whose patterns occur in `data`, in ascending order. Raises what the engine raises."""


def _grouped(patterns: Patterns) -> tuple[list[bytes], list[list[int]]]:
    """Each pattern once, and the numbers that it stands for."""
    groups: dict[bytes, list[int]] = {}
    for number, pattern in patterns:
        groups.setdefault(pattern, []).append(number)
    return list(groups), list(groups.values())


class HyperscanDatabase:
    """Patterns in Hyperscan, which releases the interpreter lock while it scans."""

    def __init__(self, patterns: Patterns, kept: KeptPatterns | None = None) -> None:
        """`patterns` are pairs of a number and a byte pattern; several may share a number."""
        import hyperscan  # noqa: PLC0415 - not built for every processor

        expressions, self._numbers = _grouped(patterns)
        self._new_scratch: Callable[[Any], Any] = hyperscan.Scratch
        self._database = _loaded(hyperscan, expressions, kept) or _compiled(hyperscan, expressions, kept)
        self._local = threading.local()

    def numbers_in(self, data: bytes) -> list[int]:
        patterns: list[int] = []

        def note(pattern: int, start: int, end: int, flags: int, context: object) -> None:
            patterns.append(pattern)

        self._database.scan(data, match_event_handler=note, scratch=self._scratch())
        return sorted({number for pattern in patterns for number in self._numbers[pattern]}) if patterns else []

    def _scratch(self) -> Any:
        """Working memory of this thread: the engine refuses to share it between two scans."""
        scratch = getattr(self._local, "scratch", None)
        if scratch is None:
            scratch = self._local.scratch = self._new_scratch(self._database)
        return scratch


def _made_from(hyperscan: Any, expressions: list[bytes]) -> bytes:
    """What a compiled database depends on, beside the processor, which the engine itself checks."""
    return repr((hyperscan.__version__, platform.machine(), expressions)).encode()


def _loaded(hyperscan: Any, expressions: list[bytes], kept: KeptPatterns | None) -> Any:
    """The database of an earlier start; None where there is none for this engine and processor."""
    data = kept.load(_made_from(hyperscan, expressions)) if kept else None
    if data is None:
        return None
    try:
        return hyperscan.loadb(data, mode=hyperscan.HS_MODE_BLOCK)
    except hyperscan.HyperscanError:
        return None


def _compiled(hyperscan: Any, expressions: list[bytes], kept: KeptPatterns | None) -> Any:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    flags = hyperscan.HS_FLAG_SINGLEMATCH | hyperscan.HS_FLAG_DOTALL | hyperscan.HS_FLAG_ALLOWEMPTY
    database.compile(
        expressions=expressions,
        ids=list(range(len(expressions))),
        elements=len(expressions),
        flags=[flags] * len(expressions),
    )
    if kept:
        kept.keep(_made_from(hyperscan, expressions), hyperscan.dumpb(database))
    return database


class Re2Database:
    """The same patterns in RE2, which compiles them in no time: nothing is kept."""

    def __init__(self, patterns: Patterns, kept: KeptPatterns | None = None) -> None:
        """`patterns` are pairs of a number and a byte pattern; several may share a number."""
        del kept
        import re2  # noqa: PLC0415 - the second choice

        options = re2.Options()
        options.dot_nl = True
        options.encoding = re2.Options.Encoding.LATIN1
        options.max_mem = _RE2_MEMORY_BYTES
        expressions, self._numbers = _grouped(patterns)
        self._set = re2.Set.SearchSet(options)
        for pattern in expressions:
            self._set.Add(pattern)
        # The engine says "no match" also when its memory did not suffice: one pattern that always matches tells.
        self._always = self._set.Add(b"")
        self._set.Compile()

    def numbers_in(self, data: bytes) -> list[int]:
        matched = self._set.Match(data) or ()
        if self._always not in matched:
            raise MemoryError("the pattern engine could not scan")
        return sorted({number for pattern in matched if pattern != self._always for number in self._numbers[pattern]})


_ENGINES: tuple[tuple[str, Callable[[Patterns, KeptPatterns | None], PatternDatabase]], ...] = (
    ("hyperscan", HyperscanDatabase),
    ("re2", Re2Database),
)


def compiled(patterns: Patterns, kept: KeptPatterns | None = None) -> PatternDatabase:
    """The patterns in the first engine that is installed; `kept` saves the time of compiling the same again.

    Raises:
        SettingsError: none is.
    """
    for module, engine in _ENGINES:
        if importlib.util.find_spec(module) is not None:
            return engine(patterns, kept)
    raise SettingsError("The privacy scanner needs hyperscan or google-re2, and neither is installed.")
