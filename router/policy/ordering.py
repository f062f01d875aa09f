"""Orders the eligible backends: mode and SLO decide the tier, hysteresis holds it, trials measure the unmeasured.

Every backend falls into one band, and within its band it is ordered by predicted time, load and name, so that
the answer depends on no order of input. Where a price is set, what a request costs is added to its time as so many
milliseconds of waiting:

    0 CHOICE      of the preferred tier, meets the SLO (or is on trial), and its tier is not being held back
    1 ALTERNATIVE of the other tier, meets the SLO (or is on trial)
    2 SLOW        measured, but misses the SLO or is held back
    3 HELD        of the edge, as slow, and its line is so long that the rest of it is kept for what no cloud may serve
    4 UNMEASURED  nothing known, and its trials are in flight already
    5 COLD        scaled to zero: must start first
    6 TIGHT       the estimated prompt and output do not fit; the backend's own count decides
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from router.policy.model import Mode, Policy, Reason, Route
from router.policy.rows import Row
from shared.fleet import Incumbent

CHOICE, ALTERNATIVE, SLOW, HELD, UNMEASURED, COLD, TIGHT = range(7)
HELD_UP = (SLOW, HELD, UNMEASURED)
"""Bands of backends that could serve, but are passed over for their speed."""

Rank = tuple[int, float, float]
"""What candidates are sorted by: band, then two figures of that band. They stand in the order of id and address before
they are sorted, which breaks the last ties."""

_EDGE, _CLOUD = "edge", "cloud"
_AUTO = Route.AUTO
_NO_LIMIT = math.inf
_PREFERRED = {Mode.PREFER_EDGE: "edge", Mode.ONLY_EDGE: "edge", Mode.PREFER_CLOUD: "cloud", Mode.ONLY_CLOUD: "cloud"}
_UNAVAILABLE = {"edge": Reason.EDGE_UNAVAILABLE, "cloud": Reason.CLOUD_UNAVAILABLE}
_TOO_SLOW = {"edge": Reason.EDGE_TOO_SLOW, "cloud": Reason.CLOUD_TOO_SLOW}


@dataclass(frozen=True, slots=True)
class TierBar:
    """What counts as fast enough in one tier at this instant, after hysteresis (milliseconds)."""

    is_preferred: bool
    meets: int
    """Band of a measured backend that is fast enough; another is `SLOW`."""
    ttft_ms: float
    tpot_ms: float
    keep_ratio: float
    """By how much predictions count as shorter, because the tier is in use; 1 otherwise."""


@dataclass(frozen=True, slots=True)
class Bar:
    """The bar of each tier."""

    preferred_tier: str | None
    """None: no tier is preferred (`fastest`)."""
    edge: TierBar
    cloud: TierBar


def bar_of(policy: Policy, mode: Mode, incumbent: Incumbent | None, now_ms: int) -> Bar:
    """The bar in force."""
    slo = policy.slo
    return _bar_of(
        _PREFERRED.get(mode),
        None if incumbent is None else incumbent.tier,
        incumbent is not None and now_ms - incumbent.since_ms < policy.dwell_ms,
        slo.ttft_ms,
        slo.tpot_ms,
        1.0 - policy.hysteresis_ratio,
    )


@lru_cache(maxsize=256)
def _bar_of(
    preferred: str | None, in_use: str | None, is_new: bool, ttft_ms: float, tpot_ms: float, keep_ratio: float
) -> Bar:
    """A preferred tier that was left must beat the objective by the margin to be taken again, and not too soon. Where
    none is preferred, the one in use is kept while another is not faster by the margin."""
    if preferred is None:
        edge, cloud = (
            TierBar(True, CHOICE, _NO_LIMIT, _NO_LIMIT, keep_ratio if tier == in_use else 1.0)
            for tier in (_EDGE, _CLOUD)
        )
        return Bar(None, edge, cloud)
    left = in_use not in (None, preferred)
    margin = keep_ratio if left else 1.0
    back_ms = -_NO_LIMIT if is_new and left else ttft_ms * margin
    first = TierBar(True, CHOICE, back_ms, tpot_ms * margin, 1.0)
    other = TierBar(False, ALTERNATIVE, ttft_ms, tpot_ms, 1.0)
    return Bar(preferred, *((first, other) if preferred == _EDGE else (other, first)))


def rank(
    row: Row, is_tight: bool, room_tokens: int, first_ms: float | None, score_ms: float, bar: TierBar, is_held: bool
) -> Rank:
    """Where an eligible backend stands among the others. `is_tight` says that the request is not expected to fit into
    `room_tokens`, `first_ms` is its predicted time (None: not known), `score_ms` that until the end, its price as
    waiting time included; `bar` is that of its tier, and `is_held` says that what is left of its line is kept for
    others."""
    if is_tight:
        return TIGHT, -room_tokens, row.load
    if row.asleep:
        return COLD, not bar.is_preferred, row.load
    if first_ms is None:
        if row.load >= row.slots:
            return UNMEASURED, not bar.is_preferred, row.load
        return CHOICE if bar.is_preferred else ALTERNATIVE, -1.0, row.load
    if first_ms > bar.ttft_ms or (row.tpot_ms or 0.0) > bar.tpot_ms:
        return HELD if is_held else SLOW, score_ms * bar.keep_ratio, row.load_ratio
    return bar.meets, score_ms * bar.keep_ratio, row.load_ratio


def reason_for_first(
    tier: str, *, by_privacy: bool, by_rule: bool, route: Route, bar: Bar, preferred_is_slow: bool, is_trial: bool
) -> Reason:
    """Why a backend of `tier` is first. `by_privacy` and `by_rule` say what ruled a zone out, the last two what else
    was there."""
    if by_privacy:
        return Reason.PRIVACY_REQUIRES_EDGE
    if by_rule:
        return Reason.POLICY_RULE
    if route is not _AUTO:
        return Reason.ROUTE_OVERRIDE
    if is_trial:
        return Reason.TRIAL
    if bar.preferred_tier is None:
        return Reason.FASTEST
    if tier == bar.preferred_tier:
        return Reason.PREFERRED_TIER
    return (_TOO_SLOW if preferred_is_slow else _UNAVAILABLE)[bar.preferred_tier]
