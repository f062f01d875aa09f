"""Keeps rate domains cool: one 429 with Retry-After stops every backend that shares the quota."""

from __future__ import annotations

import math
import re
from email.utils import parsedate_to_datetime

DEFAULT_COOL_MS = 1_000
"""Pause after a 429 that names none."""
MAX_COOL_MS = 600_000
"""Longest pause taken from a header: a mistaken date must not retire a backend for days."""

_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_MILLISECONDS = re.compile(r"[0-9]{1,12}")


class Cooldowns:
    """Until when each domain rests (monotonic milliseconds). A shorter pause never ends a longer one."""

    def __init__(self) -> None:
        self.untils_ms: dict[str, int] = {}
        """Domains that may still rest. Read by others, changed here alone."""

    def cool(self, domain: str, *, for_ms: int, now_ms: int) -> None:
        """Rest `domain` for `for_ms`, at most `MAX_COOL_MS`."""
        until = now_ms + min(max(for_ms, 0), MAX_COOL_MS)
        self.untils_ms[domain] = max(until, self.untils_ms.get(domain, 0))

    def until_ms(self, domain: str, now_ms: int) -> int | None:
        """When the rest of `domain` ends; None when it does not rest."""
        until = self.untils_ms.get(domain)
        if until is None:
            return None
        if until <= now_ms:
            del self.untils_ms[domain]
            return None
        return until


def pause_of(retry_after: str | None, retry_after_ms: str | None) -> str | None:
    """What a backend asks for, as a Retry-After header; some clouds say it in milliseconds alone."""
    if retry_after is None and retry_after_ms is not None and _MILLISECONDS.fullmatch(retry_after_ms):
        return f"{int(retry_after_ms) / 1000:.3f}"
    return retry_after


def retry_after_ms(header: str | None, *, unix_s: float) -> int | None:
    """Milliseconds that a Retry-After header asks for (RFC 9110, 10.2.3: seconds or a date); None if it says none."""
    if header is None:
        return None
    text = header.strip()
    if _SECONDS.fullmatch(text):  # fractions are no part of the standard, and are sent all the same
        return math.ceil(min(float(text) * 1000, MAX_COOL_MS))
    try:
        return min(max(0, int((parsedate_to_datetime(text).timestamp() - unix_s) * 1000)), MAX_COOL_MS)
    except (ValueError, OverflowError, TypeError):
        return None
