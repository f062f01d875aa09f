"""Orders the eligible backends: mode and SLO decide the tier, hysteresis holds it, trials measure the unmeasured.

Every backend falls into one band, and within its band it is ordered by predicted time, load and name, so that
the answer depends on no order of input. Where a price is set, what a request costs is added to its time as so many
milliseconds of waiting:

    0 CHOICE      of the preferred tier, meets the SLO (or is on trial), and its tier is not being held back
    1 ALTERNATIVE of the other tier, meets the SLO (or is on trial)
    2 SLOW        measured, but misses the SLO or is held back
    3 UNMEASURED  nothing known, and its trials are in flight already
    4 COLD        scaled to zero: must start first
    5 TIGHT       the estimated prompt and output do not fit; the backend's own count decides
"""

from __future__ import annotations

from typing import NamedTuple

from router.policy.model import Candidate, Mode, Policy, Reason, Route, Slo
from router.policy.need import Need
from router.policy.scoring import Prediction
from shared.fleet import BackendSnapshot, BackendState, Incumbent, ServedModel, Zone

CHOICE, ALTERNATIVE, SLOW, UNMEASURED, COLD, TIGHT = range(6)
HELD_UP = (SLOW, UNMEASURED)
"""Bands of backends that could serve, but are passed over for their speed."""

Rank = tuple[int, float, float, str, str]
"""What a candidate is sorted by: band, then two figures of that band, then id and address to break the last ties."""

_CLOUD, _SCALED_TO_ZERO = Zone.CLOUD, BackendState.SCALED_TO_ZERO
_PREFERRED = {Mode.PREFER_EDGE: "edge", Mode.ONLY_EDGE: "edge", Mode.PREFER_CLOUD: "cloud", Mode.ONLY_CLOUD: "cloud"}
_UNAVAILABLE = {"edge": Reason.EDGE_UNAVAILABLE, "cloud": Reason.CLOUD_UNAVAILABLE}
_TOO_SLOW = {"edge": Reason.EDGE_TOO_SLOW, "cloud": Reason.CLOUD_TOO_SLOW}


class Bar(NamedTuple):
    """What counts as fast enough for each tier at this instant, after hysteresis (milliseconds)."""

    preferred_tier: str | None
    """None: no tier is preferred (`fastest`)."""
    held_tier: str | None
    """`fastest` alone: the tier in use, whose predictions count as shorter by the margin."""
    held_back: bool
    """Whether the preferred tier was left too short a time ago to return to it."""
    ttft_ms: float
    tpot_ms: float
    return_ttft_ms: float
    return_tpot_ms: float
    keep_ratio: float


def bar_of(policy: Policy, mode: Mode, incumbent: Incumbent | None, now_ms: int) -> Bar:
    """The bar in force. A preferred tier that was left must beat the SLO by the margin to be taken again."""
    preferred = _PREFERRED.get(mode)
    slo: Slo = policy.slo
    away = preferred is not None and incumbent is not None and incumbent.tier != preferred
    margin = 1.0 - policy.hysteresis_ratio if away else 1.0
    return Bar(
        preferred_tier=preferred,
        held_tier=incumbent.tier if incumbent is not None and preferred is None else None,
        held_back=away and incumbent is not None and now_ms - incumbent.since_ms < policy.dwell_ms,
        ttft_ms=slo.ttft_ms,
        tpot_ms=slo.tpot_ms,
        return_ttft_ms=slo.ttft_ms * margin,
        return_tpot_ms=slo.tpot_ms * margin,
        keep_ratio=1.0 - policy.hysteresis_ratio,
    )


def rank(
    backend: BackendSnapshot,
    served: ServedModel,
    need: Need,
    load: int,
    prediction: Prediction,
    penalty_ms: float,
    bar: Bar,
) -> Rank:
    """Where an eligible backend stands among the others; `penalty_ms` is its price as waiting time."""
    backend_id, url = backend.backend_id, backend.url
    tier = "cloud" if backend.zone is _CLOUD else "edge"
    preferred = bar.preferred_tier is None or tier == bar.preferred_tier
    context = served.context_tokens
    if context is not None and need.likely_tokens > context:
        return TIGHT, -context, load, backend_id, url
    if backend.state is _SCALED_TO_ZERO:
        return COLD, not preferred, load, backend_id, url
    slots = backend.slots_total or 1
    total_ms = prediction[2]
    if total_ms is None:
        if load >= slots:
            return UNMEASURED, not preferred, load, backend_id, url
        return CHOICE if preferred else ALTERNATIVE, -1.0, load, backend_id, url
    total_ms += penalty_ms
    if tier == bar.held_tier:
        total_ms *= bar.keep_ratio
    return _band(prediction, preferred, bar), total_ms, load / slots, backend_id, url


def _band(prediction: Prediction, preferred: bool, bar: Bar) -> int:
    if bar.preferred_tier is None:
        return CHOICE
    ttft_ms, tpot_ms = prediction[0] or 0.0, prediction[1] or 0.0
    if not preferred:
        return ALTERNATIVE if ttft_ms <= bar.ttft_ms and tpot_ms <= bar.tpot_ms else SLOW
    if bar.held_back or ttft_ms > bar.return_ttft_ms or tpot_ms > bar.return_tpot_ms:
        return SLOW
    return CHOICE


def reason_for_first(
    first: Candidate,
    *,
    by_privacy: bool,
    by_rule: bool,
    route: Route,
    bar: Bar,
    preferred_is_slow: bool,
    is_trial: bool,
) -> Reason:
    """Why `first` is first. `by_privacy` and `by_rule` say what ruled a zone out, the last two what else was there."""
    if by_privacy:
        return Reason.PRIVACY_REQUIRES_EDGE
    if by_rule:
        return Reason.POLICY_RULE
    if route is not Route.AUTO:
        return Reason.ROUTE_OVERRIDE
    if is_trial:
        return Reason.TRIAL
    if bar.preferred_tier is None:
        return Reason.FASTEST
    if first.zone.tier == bar.preferred_tier:
        return Reason.PREFERRED_TIER
    return (_TOO_SLOW if preferred_is_slow else _UNAVAILABLE)[bar.preferred_tier]
