"""United States social security numbers, in the grouping of the card; never the ranges that are not issued."""

from __future__ import annotations

import re

from router.privacy.recognisers.model import Recogniser, by_pattern
from shared.privacy import PrivacyClass

_AREA = r"(?!000|666|9[0-9]{2})[0-9]{3}"
_NUMBER = rf"{_AREA}(?:-(?!00)[0-9]{{2}}-(?!0000)[0-9]{{4}})"
_SPACED = rf"{_AREA} (?!00)[0-9]{{2}} (?!0000)[0-9]{{4}}"
_SSN = re.compile(rf"(?<![0-9A-Za-z\-])(?<![0-9][. ])(?P<value>{_NUMBER})(?![0-9A-Za-z\-])")
_NAMED_SSN = re.compile(
    rf"(?i)(?:ssn|social security(?: number| no\.?)?)[^0-9A-Za-z]{{0,4}}(?:is )?"
    rf"(?P<value>{_SPACED}|{_AREA}(?!00)[0-9]{{2}}(?!0000)[0-9]{{4}})(?![0-9])"
)

RECOGNISERS = (
    Recogniser("us_ssn", PrivacyClass.PERSONAL, (rb"[0-9]{3}-[0-9]{2}-[0-9]{4}",), by_pattern(_SSN)),
    Recogniser(
        "us_ssn",
        PrivacyClass.PERSONAL,
        (rb"(?i)(?:ssn|social security).{0,32}[0-9]{3} ?[0-9]{2} ?[0-9]{4}",),
        by_pattern(_NAMED_SSN),
    ),
)
