"""Chinese resident identity numbers (GB 11643) and mobile numbers, also where they touch Chinese text."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator

from router.privacy.normalise import Span
from router.privacy.recognisers.model import Recogniser, Tick, inside_code
from shared.privacy import PrivacyClass

_ID = re.compile(
    r"(?<![0-9])[1-9][0-9]{5}[ -]?(?:18|19|20)[0-9]{2}[ -]?(?:0[1-9]|1[0-2])[ -]?(?:0[1-9]|[12][0-9]|3[01])"
    r"[ -]?[0-9]{3}[ -]?[0-9Xx](?![0-9])"
)
_PROVINCES_OF_REGION = {
    "1": "12345", "2": "123", "3": "1234567", "4": "123456", "5": "01234", "6": "12345", "7": "1", "8": "123",
}  # fmt: skip
"""First digit (region) to second digits (province) of the codes in GB/T 2260, with Taiwan, Hong Kong and Macao."""
_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_CHECK = "10X98765432"

_MOBILE = re.compile(r"(?<![0-9.])(?:(?:\+|00)?86[ -]?)?1[3-9][0-9](?:[0-9]{8}|([ -])[0-9]{4}\1[0-9]{4})(?![0-9])")
_CJK = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_NAMED = re.compile(r"(?i)\b(?:phone|mobile|cell|tel|call|whatsapp|wechat|sms|contact)")
_NEAR_CHARS = 24


def is_resident_id(number: str) -> bool:
    """Whether `number` (18 characters, X in upper case) has a province, a real date and the right check character."""
    if number[1] not in _PROVINCES_OF_REGION.get(number[0], ""):
        return False
    year, month, day = int(number[6:10]), int(number[10:12]), int(number[12:14])
    if day > calendar.monthrange(year, month)[1]:
        return False
    return _CHECK[sum(w * int(d) for w, d in zip(_WEIGHTS, number[:17], strict=True)) % 11] == number[17]


def find_ids(text: str, tick: Tick) -> Iterator[Span]:
    """Resident identity numbers in `text`."""
    for match in _ID.finditer(text):
        tick()
        number = match.group().replace(" ", "").replace("-", "").upper()
        if is_resident_id(number) and not inside_code(text, *match.span()):
            yield match.span()


def find_mobiles(text: str, tick: Tick) -> Iterator[Span]:
    """Mobile numbers in `text`. Eleven bare digits are one only near Chinese text or a word for telephone; a
    country prefix or the usual grouping speaks for itself."""
    for match in _MOBILE.finditer(text):
        tick()
        start, end = match.span()
        said = match.group()[:1] != "1" or match.group(1) is not None
        if inside_code(text, start, end):
            continue
        near = text[max(0, start - _NEAR_CHARS) : end + _NEAR_CHARS]
        if said or _CJK.search(near) or _NAMED.search(near):
            yield start, end


RECOGNISERS = (
    Recogniser("cn_resident_id", PrivacyClass.PERSONAL, (rb"[0-9]{6}[ -]?(?:18|19|20)[0-9]{2}[ -]?[01]",), find_ids),
    Recogniser("cn_mobile", PrivacyClass.PERSONAL, (rb"1[3-9][0-9][ -]?[0-9]{4}[ -]?[0-9]{4}",), find_mobiles),
)
