"""What a run under simulated heat has to show, and whether it did: rows of the table and the verdict. Pure.

Times are model seconds of the simulated device, which pass `compression` times as fast as the clock's.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from loadtests.demo.expectations import Observed

ROW_S = 10.0
_ANSWERED = 200
_REFUSED = 503
_PERSONAL_REFUSALS = frozenset({"privacy_unavailable", "no_capacity"})
NOMINAL, CRITICAL = "nominal", "critical"


@dataclass(frozen=True, slots=True)
class Look:
    """The device as the router saw it at one moment; None is not known."""

    at_s: float
    level: str
    derate_ratio: float | None = None
    speculation: str | None = None
    slots: int | None = None
    temperature_c: float | None = None
    seconds_to_throttle: float | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: when it was sent and answered, whether it may leave the device, and what came."""

    sent_s: float
    ended_s: float
    personal: bool
    observed: Observed


@dataclass(frozen=True, slots=True)
class Row:
    """Ten seconds of the device."""

    from_s: float
    level: str
    temperature_c: float | None
    derate_ratio: float | None
    speculation: str | None
    slots: int | None
    throttle_in_s: float | None
    answered: int
    cloud_ratio: float | None
    """Share of the answered requests that may leave the device and went to the cloud."""
    ttft_p50_ms: float | None


def rows(looks: Sequence[Look], asked: Sequence[Asked]) -> list[Row]:
    """The run in steps of ten seconds; the device as it was at the end of each."""
    table = []
    for number, group in itertools.groupby(looks, key=lambda look: int(look.at_s // ROW_S)):
        last = list(group)[-1]
        within = [each for each in asked if int(each.ended_s // ROW_S) == number]
        table.append(_row(number * ROW_S, last, [each for each in within if each.observed.status == _ANSWERED]))
    return table


def _row(from_s: float, look: Look, answered: list[Asked]) -> Row:
    public = [each.observed.tier for each in answered if not each.personal]
    first_ms = [each.observed.ttft_ms for each in answered if each.observed.ttft_ms is not None]
    return Row(
        from_s=from_s,
        level=look.level,
        temperature_c=look.temperature_c,
        derate_ratio=look.derate_ratio,
        speculation=look.speculation,
        slots=look.slots,
        throttle_in_s=look.seconds_to_throttle,
        answered=len(answered),
        cloud_ratio=Counter(public)["cloud"] / len(public) if public else None,
        ttft_p50_ms=median(first_ms) if first_ms else None,
    )


def changes(looks: Sequence[Look]) -> list[Look]:
    """The first look of each new level."""
    return [after for before, after in itertools.pairwise(looks) if after.level != before.level]


def faults(
    looks: Sequence[Look], asked: Sequence[Asked], *, has_cloud: bool, dwell_s: float, lag_s: float
) -> list[str]:
    """What the run did that it must not; empty if all was well.

    Levels are seen `lag_s` late at most, so changes may seem that much closer than they were.
    """
    found = [wrong for each in asked if (wrong := _wrong(each, looks, has_cloud=has_cloud)) is not None]
    for before, after in itertools.pairwise(changes(looks)):
        if after.at_s - before.at_s < dwell_s - lag_s:
            found.append(
                f"the level changed to {before.level} and then to {after.level} within {after.at_s - before.at_s:.1f} s"
            )
    if not looks or looks[-1].level != NOMINAL:
        found.append(f"the device did not recover: it is {looks[-1].level if looks else 'unseen'}")
    return found


def _wrong(each: Asked, looks: Sequence[Look], *, has_cloud: bool) -> str | None:
    """Why this answer is not what policy allows, or None."""
    seen, kind = each.observed, "personal" if each.personal else "public"
    if each.personal and seen.tier == "cloud":
        return f"at {each.sent_s:.0f} s a personal request went to the cloud"
    if seen.status == _ANSWERED and seen.failure is None:
        return None
    nowhere = each.personal or not has_cloud
    if nowhere and seen.status == _REFUSED and seen.code in _PERSONAL_REFUSALS and _was_critical(each, looks):
        return None
    return f"at {each.sent_s:.0f} s a {kind} request failed: {seen.failure or f'{seen.status} {seen.code}'}"


def _was_critical(each: Asked, looks: Sequence[Look]) -> bool:
    """Whether the device took nothing new at some time while the request waited."""
    around = [look for look in looks if each.sent_s - ROW_S <= look.at_s <= each.ended_s + ROW_S]
    return any(look.level == CRITICAL for look in around)


def summary(looks: Sequence[Look], asked: Sequence[Asked]) -> dict[str, Any]:
    """Figures of the whole run."""
    answered = [each for each in asked if each.observed.status == _ANSWERED and each.observed.failure is None]
    tiers = Counter(each.observed.tier or "unknown" for each in answered)
    return {
        "requests": len(asked),
        "answered": len(answered),
        "refused_as_policy_says": len(asked) - len(answered),
        "tiers": dict(sorted(tiers.items())),
        "levels": [looks[0].level, *(look.level for look in changes(looks))] if looks else [],
    }
