"""Finds an operator's own patterns and words in time linear in the text, whatever the pattern.

RE2 follows all ways through a pattern at once instead of trying one after another, so no pattern can hold a scan up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import re2

from router.privacy.normalise import Span
from shared.errors import SettingsError

MAX_MATCHES = 100_000
_MEMORY_BYTES = 64 * 1024 * 1024


class TooManyMatches(Exception):
    """A pattern matches nearly everywhere."""


class LinearPatterns:
    """Several patterns, asked together."""

    def __init__(self, patterns: Sequence[str], *, ignore_case: bool, setting: str) -> None:
        """Raises: SettingsError that names `setting`: no pattern, one that looks around, or one for no text."""
        options = re2.Options()
        options.longest_match = True
        options.case_sensitive = not ignore_case
        options.log_errors = False
        options.max_mem = _MEMORY_BYTES
        try:
            self._compiled = re2.compile("|".join(f"(?:{pattern})" for pattern in patterns), options=options)
            matches_nothing = self._compiled.search("") is not None
        except re2.error:
            raise _refused(setting) from None
        if matches_nothing:
            raise _refused(setting)

    def spans(self, text: str) -> Iterator[Span]:
        """Character spans of the longest match at each start, from left to right, none within another."""
        for count, match in enumerate(self._compiled.finditer(text)):
            if count >= MAX_MATCHES:
                raise TooManyMatches
            yield match.span()


def _refused(setting: str) -> SettingsError:
    return SettingsError(
        f"A pattern of {setting} cannot be used: it must be a regular expression that matches no empty text, without "
        "look-around and back-references.",
        param=setting,
    )
