"""Makes personal data that belongs to nobody and can be found again: one canary a request, known by a run's marker.

A canary is an e-mail address or a payment card number. Both carry the marker of the run, so that a recorder before
the cloud needs to know the marker alone, and both are what the privacy scanner must find: a cloud that sees one has
been sent what had to stay.
"""

from __future__ import annotations

import hashlib
import random
import re
from dataclasses import dataclass

_CARD_PREFIX = "4"
_SEPARATORS = re.compile(rb"(?<=[0-9])[ -](?=[0-9])")


@dataclass(frozen=True, slots=True)
class Marker:
    """What all canaries of a run share: a word of letters for addresses, and digits for card numbers."""

    word: str
    digits: str

    def canary(self, dice: random.Random) -> str:
        """A canary of its own for one request."""
        if dice.random() < 0.5:
            return f"{self.word}.{dice.getrandbits(32):08x}@example.com"
        body = _CARD_PREFIX + self.digits + f"{dice.randrange(10**4):04d}"
        number = body + check_digit(body)
        return " ".join(number[at : at + 4] for at in range(0, 16, 4))


def marker_of(seed: int, run: str) -> Marker:
    """The marker of a run: different for each run of the same seed, so that no cache of an earlier one is found."""
    digest = hashlib.sha256(f"{seed}:{run}".encode()).digest()
    letters = "".join(chr(ord("a") + byte % 26) for byte in digest[:10])
    digits = str(int.from_bytes(digest[10:18], "big") % 10**10).zfill(10)
    return Marker(f"cn{letters}", digits)


def check_digit(digits: str) -> str:
    """The Luhn digit (ISO/IEC 7812-1) that completes a card number."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if place % 2 == 0 else 1)
        total += value - 9 if value > 9 else value
    return str(-total % 10)


def leaked_bytes(data: bytes, marker: Marker) -> int:
    """How many bytes of canaries `data` holds, however its digits are grouped and its letters written."""
    found = sum(len(match) for match in re.findall(rb"(?i)" + marker.word.encode() + rb"[0-9a-z.@]*", data))
    joined = _SEPARATORS.sub(b"", data)
    return found + sum(len(match) for match in re.findall(marker.digits.encode() + rb"[0-9]*", joined))
