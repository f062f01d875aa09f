"""International bank account numbers, in print or plain form, with their country's length and structure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stdnum import iban

from router.privacy.normalise import Span
from router.privacy.recognisers.model import Recogniser, Tick
from shared.privacy import PrivacyClass

_GAP = r"[ \t\r\n.\-_/]"
_HEAD = re.compile(rf"[A-Za-z]{{2}}[ -]?[0-9]{{2}}(?={_GAP}{{0,8}}[A-Za-z0-9])")
_CHAR = re.compile(rf"{_GAP}{{0,8}}([A-Za-z0-9])")
_GOES_ON = re.compile(r"(?![A-Za-z]{1,4}(?![A-Za-z0-9]))[A-Za-z0-9]")
"""A longer code. A few letters, such as a currency's, may touch the end of a number."""
_SIGNED = re.compile(
    r"(?<![0-9A-Za-z])[A-Za-z]{2}[0-9]{2}([,:;|+*~=])[0-9A-Za-z]{4}(?:\1[0-9A-Za-z]{4}){2,6}(?:\1[0-9A-Za-z]{1,3})?(?![0-9A-Za-z])"
)
_SIGNED_TRIGGER = rb"[A-Za-z]{2}[0-9]{2}[,:;|+*~=][0-9A-Za-z]{4}[,:;|+*~=][0-9A-Za-z]{4}[,:;|+*~=]"
_COUNTRIES_OF_LENGTH = {
    15: "NO",
    16: "BE",
    18: "DK FI FK FO GL NL SD",
    19: "MK SI",
    20: "AT BA EE KZ LT LU MN XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ OM SO TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "BI DJ FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU YE",
    31: "MT SC",
    32: "LC",
    33: "RU",
}
"""Length of the whole number by country (SWIFT IBAN registry)."""
_LENGTHS = {country: length for length, countries in _COUNTRIES_OF_LENGTH.items() for country in countries.split()}


def find(text: str, tick: Tick) -> Iterator[Span]:
    """IBANs in `text`. The span ends with the last character that belongs to the number, so a capitalised word
    behind a number of full length stays outside."""
    behind = 0
    for head in _HEAD.finditer(text):
        tick()
        if head.start() < behind or _is_inside_word(text, head.start()):
            continue
        end = _end_of_number(text, head)
        if end is not None:
            behind = end
            yield head.start(), end


def _find_signed(text: str, tick: Tick) -> Iterator[Span]:
    """IBANs whose groups are parted by another sign, the same throughout."""
    for match in _SIGNED.finditer(text):
        tick()
        number = match.group().replace(match[1], "").upper()
        if len(number) == _LENGTHS.get(number[:2]) and iban.is_valid(number, check_country=False):
            yield match.span()


def _is_inside_word(text: str, start: int) -> bool:
    """Whether letters or digits touch the left side, other than the name of such numbers."""
    before = text[max(0, start - 4) : start]
    return before[-1:].isascii() and before[-1:].isalnum() and before.upper() != "IBAN"


def _end_of_number(text: str, head: re.Match[str]) -> int | None:
    """Where the number that begins at `head` ends, if it has its country's length and is right."""
    number = head.group().replace(" ", "").replace("-", "").upper()
    length = _LENGTHS.get(number[:2])
    if length is None:
        return None
    at = head.end()
    while len(number) < length:
        char = _CHAR.match(text, at)
        if char is None:
            return None
        number += char.group(1).upper()
        at = char.end()
    return at if not _GOES_ON.match(text, at) and iban.is_valid(number, check_country=False) else None


_TRIGGERS = tuple(
    f"{head}(?:{_GAP}{{0,8}}[A-Za-z0-9]){{{more}}}".encode()
    for head, more in (
        (rf"[A-Za-z]{{2}}[ -]?[0-9]{{2}}(?:{_GAP}{{0,8}}[0-9]){{3}}", 8),
        (rf"[A-Za-z]{{2}}[ -]?[0-9]{{2}}(?:{_GAP}{{0,8}}[A-Za-z0-9]){{4}}{_GAP}{{0,8}}[0-9]", 6),
        (r"[Rr][Oo][ -]?[0-9]{2}", 11),
    )
)
"""The bank's part begins with digits, or has one behind four characters; only in Romania it may have neither."""
RECOGNISERS = (
    Recogniser("iban", PrivacyClass.PERSONAL, _TRIGGERS, find),
    Recogniser("iban", PrivacyClass.PERSONAL, (_SIGNED_TRIGGER,), _find_signed),
)
