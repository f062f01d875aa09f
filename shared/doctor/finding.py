"""One result of a check, and when results together mean failure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing installed here needs it, or it is missing only for now."""
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, for which tier (`shared` for all), what was found, and what to do."""

    tier: str
    subject: str
    verdict: Verdict
    found: str
    advice: str | None = None


def is_failure(findings: Iterable[Finding]) -> bool:
    """Whether something that an installed tier needs is missing."""
    return any(each.verdict is Verdict.MISSING for each in findings)
