"""International bank account numbers, in print or plain form, with their country's length and structure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stdnum import iban

from router.privacy.normalise import Span
from router.privacy.recognisers.model import Recogniser, Tick
from shared.privacy import PrivacyClass

_HEAD = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}[ -]?[0-9]{2}(?=[ -]?[A-Za-z0-9])")
_CHAR = re.compile(r"[ -]{0,2}([A-Za-z0-9])")
_MAX_CHARS = 34
_MIN_CHARS = 15


def find(text: str, tick: Tick) -> Iterator[Span]:
    """IBANs in `text`. The span ends with the last character that belongs to the number, so a capitalised word
    behind a number of full length stays outside."""
    behind = 0
    for head in _HEAD.finditer(text):
        tick()
        if head.start() < behind:
            continue
        end = _end_of_number(text, head)
        if end is not None:
            behind = end
            yield head.start(), end


def _end_of_number(text: str, head: re.Match[str]) -> int | None:
    """Where the number that begins at `head` ends. Each word end is tried, as the structure names one length."""
    number = head.group().replace(" ", "").replace("-", "").upper()
    at = head.end()
    while len(number) < _MAX_CHARS and (char := _CHAR.match(text, at)):
        number += char.group(1).upper()
        at = char.end()
        if len(number) >= _MIN_CHARS and not _continues(text, at) and is_iban(number):
            return at
    return None


def _continues(text: str, at: int) -> bool:
    return at < len(text) and text[at].isascii() and text[at].isalnum()


def is_iban(number: str) -> bool:
    """Whether `number` (compact, upper case) has its country's structure and the right check digits."""
    # Remainder first (ISO 7064, MOD 97-10): the registry look-up behind it costs a hundred times more.
    rearranged = number[4:] + number[:4]
    if int("".join(str(int(c, 36)) for c in rearranged)) % 97 != 1:
        return False
    return bool(iban.is_valid(number, check_country=False))


RECOGNISERS = (
    Recogniser(
        "iban", PrivacyClass.PERSONAL, (rb"[A-Za-z]{2}[ -]?[0-9]{2}(?:[ -]{0,2}[A-Za-z0-9]){11}",), find
    ),
)  # fmt: skip
