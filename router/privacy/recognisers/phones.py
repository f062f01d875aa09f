"""Telephone numbers: international ones by their plus sign, national ones only where the writing is unmistakable.

The numbering plans are those of `phonenumbers`; digits without a sign or a grouping are left alone, because most
of them are something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import phonenumbers

from router.privacy.normalise import Span
from router.privacy.recognisers.model import Recogniser, Tick, inside_code
from shared.privacy import PrivacyClass

_INTERNATIONAL = re.compile(r"(?<![0-9A-Za-z+])(?:\+|00(?=[1-9]))[0-9](?:[ \t.\-/()]{0,3}[0-9]){6,14}(?![0-9])")
_NATIONAL: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<![0-9.\-+])(?<!\+1 )\([2-9][0-9]{2}\)[ .-]?[2-9][0-9]{2}[ .-][0-9]{4}(?![0-9\-])"), "US"),
    (re.compile(r"(?<![0-9.\-+])(?:1[.-])?[2-9][0-9]{2}([.-])[2-9][0-9]{2}\1[0-9]{4}(?![0-9.\-])"), "US"),
    (re.compile(r"(?<![0-9.\-+])0[1-9](?:([ .-])[0-9]{2})(?:\1[0-9]{2}){3}(?![0-9.\-])"), "FR"),
    (re.compile(r"(?<![0-9.\-+])\(?0[127][0-9]{2,4}\)? [0-9]{3,4} [0-9]{3,4}(?![0-9\-])"), "GB"),
    (re.compile(r"(?<![0-9.\-+])\(?02[0-9]\)? [0-9]{4} [0-9]{4}(?![0-9\-])"), "GB"),
)  # fmt: skip
_NAMED = re.compile(
    r"(?i)(?:\b(?:tel|phone|mobile|cell|call(?: me)?(?: at| on)?|fax|whatsapp|handy|telefon)\b)[.: ]{0,3}"
)
_AFTER_NAME = re.compile(r"(?:is |at |on |nr\.? |no\.? |number )?(0[1-9][0-9](?:[ \-/]{0,2}[0-9]){6,10})(?![0-9])")
_NAMED_REGIONS = ("DE", "GB", "FR", "IT", "CN", "JP", "IN", "ES")


def find(text: str, tick: Tick) -> Iterator[Span]:
    """Telephone numbers in `text`."""
    for match in _INTERNATIONAL.finditer(text):
        tick()
        if _is_valid("+" + match.group().removeprefix("+").removeprefix("00"), None):
            yield match.span()
    for pattern, region in _NATIONAL:
        for match in pattern.finditer(text):
            tick()
            if not inside_code(text, *match.span()) and _is_possible(match.group(), region):
                yield match.span()
    for name in _NAMED.finditer(text):
        tick()
        after = _AFTER_NAME.match(text, name.end())
        if after and any(_is_valid(after.group(1), region) for region in _NAMED_REGIONS):
            yield after.span(1)


def _is_valid(number: str, region: str | None) -> bool:
    parsed = _parsed(number, region)
    return parsed is not None and phonenumbers.is_valid_number(parsed)


def _is_possible(number: str, region: str) -> bool:
    """The grouping has said that this is a telephone number: fictitious and future ranges count too."""
    parsed = _parsed(number, region)
    return parsed is not None and phonenumbers.is_possible_number(parsed)


def _parsed(number: str, region: str | None) -> phonenumbers.PhoneNumber | None:
    try:
        return phonenumbers.parse(number, region)
    except phonenumbers.NumberParseException:
        return None


RECOGNISERS = (
    Recogniser(
        "phone",
        PrivacyClass.PERSONAL,
        (
            rb"(?:\+|00)[0-9](?:[ \t.\-/()]{0,3}[0-9]){6}",
            rb"[2-9][0-9]{2}[).\-][ .\-]?[2-9][0-9]{2}[ .\-][0-9]{4}",
            rb"0[1-9][0-9]?[0-9]?[0-9]?[)]?[ .\-][0-9]{2}",
            rb"(?i)(?:tel|phone|mobile|cell|call|fax|whatsapp|handy).{0,24}0[1-9][0-9]",
        ),
        find,
    ),
)
