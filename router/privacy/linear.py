"""Finds an operator's own patterns and words in time linear in the text, whatever the pattern.

A pattern goes to Hyperscan or RE2, neither of which tries one way after another, so no pattern can hold a scan up.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence

from router.privacy.normalise import Span
from shared.errors import SettingsError

MAX_MATCHES = 100_000
_Spans = Callable[[bytes], Iterable[Span]]
"""Byte spans of matches in a text in UTF-8, of the same start perhaps several."""


class TooManyMatches(Exception):
    """A pattern matches nearly everywhere."""


class LinearPatterns:
    """Several patterns, asked together."""

    def __init__(self, patterns: Sequence[str], *, ignore_case: bool, setting: str) -> None:
        """Raises: SettingsError that names `setting`: no pattern, one that looks back, or one that matches no text."""
        engine = _hyperscan if importlib.util.find_spec("hyperscan") is not None else _re2
        self._spans = engine(patterns, ignore_case, setting)

    def spans(self, text: str) -> Iterator[Span]:
        """Character spans of the longest match at each start, from left to right, none within another."""
        data = text.encode("utf-8", "replace")
        longest: dict[int, int] = {}
        for start, end in self._spans(data):
            longest[start] = max(end, longest.get(start, 0))
        behind, chars, at = 0, 0, 0
        for start in sorted(longest):
            end = longest[start]
            if start < behind:
                continue
            first = chars + len(data[at:start].decode("utf-8", "replace"))
            chars = first + len(data[start:end].decode("utf-8", "replace"))
            behind = at = end
            yield first, chars


def _refused(setting: str) -> SettingsError:
    return SettingsError(
        f"A pattern of {setting} cannot be used: it must be a regular expression that matches no empty text, without "
        "look-around and back-references.",
        param=setting,
    )


def _hyperscan(patterns: Sequence[str], ignore_case: bool, setting: str) -> _Spans:
    import hyperscan  # noqa: PLC0415 - not built for every processor

    flags = hyperscan.HS_FLAG_SOM_LEFTMOST | hyperscan.HS_FLAG_UTF8 | (hyperscan.HS_FLAG_CASELESS if ignore_case else 0)
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    expressions = [pattern.encode() for pattern in patterns]
    try:
        database.compile(
            expressions=expressions,
            ids=list(range(len(expressions))),
            elements=len(expressions),
            flags=[flags] * len(expressions),
        )
    except hyperscan.error:
        raise _refused(setting) from None

    def spans(data: bytes) -> list[Span]:
        found: list[Span] = []

        def note(pattern: int, start: int, end: int, flags: int, context: object) -> bool:
            found.append((start, end))
            return len(found) > MAX_MATCHES

        try:
            database.scan(data, match_event_handler=note, scratch=hyperscan.Scratch(database))
        except hyperscan.ScanTerminated:
            raise TooManyMatches from None
        return found

    return spans


def _re2(patterns: Sequence[str], ignore_case: bool, setting: str) -> _Spans:
    import re2  # noqa: PLC0415 - the second choice

    options = re2.Options()
    options.longest_match = True
    options.case_sensitive = not ignore_case
    options.log_errors = False
    try:
        compiled = re2.compile("|".join(f"(?:{pattern})" for pattern in patterns), options=options)
    except re2.error:
        raise _refused(setting) from None
    if compiled.match(b""):
        raise _refused(setting)

    def spans(data: bytes) -> list[Span]:
        found: list[Span] = []
        for match in compiled.finditer(data):
            found.append(match.span())
            if len(found) > MAX_MATCHES:
                raise TooManyMatches
        return found

    return spans
