"""Chinese resident identity numbers (GB 11643) and mobile numbers, also where they touch Chinese text."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator

from router.privacy.normalise import Span
from router.privacy.recognisers.model import Recogniser, Tick, inside_code, inside_uuid
from router.privacy.recognisers.nearby import is_in_row, named
from shared.privacy import PrivacyClass

_GAP = r"[ \t.\-/_]{0,3}"
_ID = re.compile(rf"(?<![0-9])[1-9](?:{_GAP}[0-9]){{16}}{_GAP}[0-9Xx](?![0-9])")
_GROUP = re.compile(r"[0-9Xx]+")
_SHAPES = frozenset(
    {(18,), (6, 12), (14, 4), (17, 1), (6, 8, 4), (6, 6, 6), (6, 8, 3, 1), (6, 4, 4, 4), (6, 4, 2, 2, 4),
     (6, 4, 4, 3, 1), (6, 4, 2, 2, 3, 1), (2, 2, 2, 4, 2, 2, 4), (2, 2, 2, 4, 2, 2, 3, 1), (3, 3, 4, 4, 4),
     (3, 3, 4, 2, 2, 3, 1), (4, 4, 4, 4, 2), (3,) * 6, (2,) * 9, (1,) * 18}
)  # fmt: skip
"""Groupings in use. Any other counts only near a word that says what it is: a table has all sorts."""
ID_NAMED = (r"身份|证件|證件|证号|證號|公民|居民|\bid\b|identity|resident|shenfenzheng|\bsfz",)
_BESIDE = re.compile(r"[0-9][ \t.\-/_,]{1,3}\Z")
_GOES_ON = re.compile(r"[ \t.\-/_,]{1,3}[0-9]")
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
    if number[1] not in _PROVINCES_OF_REGION.get(number[0], "") or number[6:8] not in ("18", "19", "20"):
        return False
    year, month, day = int(number[6:10]), int(number[10:12]), int(number[12:14])
    if not 1 <= month <= 12 or not 1 <= day <= calendar.monthrange(year, month)[1]:
        return False
    return _CHECK[sum(w * int(d) for w, d in zip(_WEIGHTS, number[:17], strict=True)) % 11] == number[17]


def find_ids(text: str, tick: Tick) -> Iterator[Span]:
    """Resident identity numbers in `text`."""
    for match in _ID.finditer(text):
        tick()
        start, end = match.span()
        groups = _GROUP.findall(match.group())
        if is_resident_id("".join(groups).upper()) and not inside_code(text, start, end):
            shape = tuple(map(len, groups))
            is_whole = len(shape) < 3 or not (
                _BESIDE.search(text[max(0, start - 4) : start]) or _GOES_ON.match(text, end)
            )
            if (shape in _SHAPES and is_whole) or named(text, start, end, ID_NAMED):
                yield start, end


def find_mobiles(text: str, tick: Tick) -> Iterator[Span]:
    """Mobile numbers in `text`. Eleven bare digits are one only near Chinese text or a word for telephone; a
    country prefix or the usual grouping speaks for itself."""
    for match in _MOBILE.finditer(text):
        tick()
        start, end = match.span()
        # Thirteen digits that begin with 86 are mostly something else.
        said = match.group(1) is not None or match.group()[:1] in "+0" or match.group()[2:3] in (" ", "-")
        if is_in_row(text, start, end) or text[start - 1 : start].encode("ascii", "ignore").isalpha():
            said = False
        if inside_code(text, start, end) or inside_uuid(text, start, end):
            continue
        near = text[max(0, start - _NEAR_CHARS) : end + _NEAR_CHARS]
        if said or _CJK.search(near) or _NAMED.search(near):
            yield start, end


_ID_TRIGGER = rf"[1-8](?:{_GAP}[0-9]){{5}}{_GAP}(?:1{_GAP}[89]|2{_GAP}0)(?:{_GAP}[0-9]){{9}}".encode()
"""Region, century, and as many digits as follow them."""
RECOGNISERS = (
    Recogniser("cn_resident_id", PrivacyClass.PERSONAL, (_ID_TRIGGER,), find_ids),
    Recogniser("cn_mobile", PrivacyClass.PERSONAL, (rb"1[3-9][0-9][ -]?[0-9]{4}[ -]?[0-9]{4}",), find_mobiles),
)
