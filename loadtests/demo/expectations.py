"""What the demo sends in which situation, and what the default policy says must come of it.

The table is the policy as a reader would state it; `judge` compares an observed answer with it. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from loadtests import prompts


class Situation(StrEnum):
    """The state of the stack while rows are played."""

    NORMAL = "normal"
    DEVICE_CRITICAL = "device critical"
    EDGE_KILLED = "edge killed"
    CLOUD_KILLED = "cloud killed"


@dataclass(frozen=True, slots=True)
class Expected:
    """One outcome that policy allows. `reasons` are values of `x-isthmus-reason`; `code` is that of an error."""

    status: int
    privacy_class: str
    tier: str | None = None
    reasons: frozenset[str] = frozenset()
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One request of the demo. `without_cloud` is what holds where no cloud tier runs; empty: the row needs one."""

    kind: str
    situation: Situation
    prompt: str
    expected: tuple[Expected, ...]
    without_cloud: tuple[Expected, ...] = ()
    route: str | None = None
    max_tokens: int = 24


@dataclass(frozen=True, slots=True)
class Observed:
    """What came back. Times are milliseconds; `text` is the answer's, empty for an error."""

    status: int
    privacy_class: str | None = None
    tier: str | None = None
    reason: str | None = None
    code: str | None = None
    failure: str | None = None
    """Why a stream of status 200 was no good answer."""
    ttft_ms: float | None = None
    tokens_per_s: float | None = None
    text: str = ""


_EDGE_PREFERRED = Expected(200, "public", "edge", frozenset({"preferred_tier", "trial"}))
_EDGE_TOO_SLOW = Expected(200, "public", "cloud", frozenset({"edge_too_slow"}))
_EDGE_FOR_PRIVACY = Expected(200, "personal", "edge", frozenset({"privacy_requires_edge"}))
_CLOUD_FOR_LACK_OF_EDGE = Expected(200, "public", "cloud", frozenset({"edge_unavailable"}))
_PRIVACY_REFUSED = Expected(503, "personal", code="privacy_unavailable")
_NO_CAPACITY = Expected(503, "personal", code="no_capacity")

ROWS = (
    Row("public", Situation.NORMAL, prompts.PUBLIC, (_EDGE_PREFERRED, _EDGE_TOO_SLOW), (_EDGE_PREFERRED,)),
    Row("card number", Situation.NORMAL, prompts.PERSONAL, (_EDGE_FOR_PRIVACY,), (_EDGE_FOR_PRIVACY,)),
    Row(
        "card number, route cloud",
        Situation.NORMAL,
        prompts.PERSONAL,
        (_PRIVACY_REFUSED,),
        (_PRIVACY_REFUSED,),
        route="cloud",
    ),
    Row(
        "code",
        Situation.NORMAL,
        prompts.CODE,
        (_EDGE_PREFERRED, _EDGE_TOO_SLOW),
        (_EDGE_PREFERRED,),
        max_tokens=64,
    ),
    Row("public", Situation.DEVICE_CRITICAL, prompts.PUBLIC, (_CLOUD_FOR_LACK_OF_EDGE,)),
    Row("card number", Situation.DEVICE_CRITICAL, prompts.PERSONAL, (_PRIVACY_REFUSED,), (_NO_CAPACITY,)),
    Row("public", Situation.EDGE_KILLED, prompts.PUBLIC, (_CLOUD_FOR_LACK_OF_EDGE,)),
    Row("public", Situation.CLOUD_KILLED, prompts.PUBLIC, (_EDGE_PREFERRED,)),
)


def judge(row: Row, observed: Observed, *, has_cloud: bool) -> str | None:
    """None where `observed` is what policy says for `row`; else what differs from the first allowed outcome."""
    allowed = row.expected if has_cloud else row.without_cloud
    differences = [_difference(expected, observed) for expected in allowed]
    return None if None in differences else differences[0]


def _difference(expected: Expected, observed: Observed) -> str | None:
    facts: list[tuple[str, object, object]] = [
        ("status", observed.status, expected.status),
        ("class", observed.privacy_class, expected.privacy_class),
        ("code", observed.code, expected.code),
    ]
    if expected.tier is not None:
        facts.append(("tier", observed.tier, expected.tier))
    found = [f"{name} is {seen}, policy says {wanted}" for name, seen, wanted in facts if seen != wanted]
    if expected.reasons and observed.reason not in expected.reasons:
        found.append(f"reason is {observed.reason}, policy says {' or '.join(sorted(expected.reasons))}")
    if observed.failure is not None:
        found.append(f"the stream failed: {observed.failure}")
    elif expected.status == 200 and not observed.text.strip():
        found.append("the answer is empty")
    return "; ".join(found) or None
