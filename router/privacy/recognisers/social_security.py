"""United States social security numbers, in the grouping of the card; never the ranges that are not issued."""

from __future__ import annotations

import re
from collections.abc import Iterator

from router.privacy.normalise import Span
from router.privacy.recognisers.model import Recogniser, Tick, by_pattern
from router.privacy.recognisers.nearby import is_in_row, is_joined, is_other_number, named
from shared.privacy import PrivacyClass

_AREA = r"(?!000|666|9[0-9]{2})[0-9]{3}"
_NUMBER = rf"{_AREA}(?:-(?!00)[0-9]{{2}}-(?!0000)[0-9]{{4}})"
_SSN = re.compile(rf"(?<![0-9A-Za-z\-])(?<![0-9][. ])(?P<value>{_NUMBER})(?![0-9A-Za-z\-])")
_NAMES = (r"ssns?\b|social[ _-]?security|\bsoc\.? ?sec",)
_WRITTEN = re.compile(
    rf"(?<![0-9])(?<![0-9][. \-]){_AREA}(?P<joint>[ .\-]?)(?!00)[0-9]{{2}}(?P=joint)(?!0000)[0-9]{{4}}(?![0-9A-Za-z])"
)


def _find_named(text: str, tick: Tick) -> Iterator[Span]:
    """Numbers in any grouping, near a word that says what they are."""
    for match in _WRITTEN.finditer(text):
        tick()
        start, end = match.span()
        is_other = is_other_number(text, start, end, _NAMES) or is_joined(text, start, end)
        if named(text, start, end, _NAMES) and not is_other and not is_in_row(text, start, end):
            yield start, end


RECOGNISERS = (
    Recogniser("us_ssn", PrivacyClass.PERSONAL, (rb"[0-9]{3}-[0-9]{2}-[0-9]{4}",), by_pattern(_SSN)),
    Recogniser("us_ssn", PrivacyClass.PERSONAL, (rb"(?i)ssn", rb"(?i)soc(?:ial|\.)?.?sec"), _find_named),
)
