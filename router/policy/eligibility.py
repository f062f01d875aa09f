"""Decides whether one backend may and can serve one request; the first check that fails names the reason.

Checks count in the order of `Rejection`: what may be (privacy, rules, caller, mode) before what can be. Those that
depend on the backend alone are made when it changes (`rows.row_of`). A missing figure rejects nobody: a backend that
reports no load is neither idle nor full, one that declares no context or no features of OpenAI's own answers
for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from router.policy.model import Rejection
from router.policy.need import Need
from shared.fleet import BackendSnapshot, BackendState, Breaker, ThermalLevel, Zone
from shared.openai.facts import OWN_FEATURES

# Looking up a member on an Enum class costs more than the comparison it is for: members are bound once.
_CLOSED, _OPEN = Breaker.CLOSED, Breaker.OPEN
_ZONES = tuple(Zone)
_CRITICAL = ThermalLevel.CRITICAL
_BY_STATE = {
    BackendState.STARTING: Rejection.NOT_READY,
    BackendState.FAILED: Rejection.NOT_READY,
    BackendState.DRAINING: Rejection.DRAINING,
}
_PRIVACY, _RULE = Rejection.PRIVACY, Rejection.RULE
_ROUTE_OVERRIDE, _MODE = Rejection.ROUTE_OVERRIDE, Rejection.MODE


@lru_cache(maxsize=4_096)
def permission_rejections(
    by_privacy: frozenset[Zone], by_rule: frozenset[Zone], by_route: frozenset[Zone], by_mode: frozenset[Zone]
) -> Mapping[Zone, Rejection | None]:
    """For each zone, why no backend in it may be used, or None. There are few answers: 8 sets to the power of 4."""
    forbidden: dict[Zone, Rejection | None] = {}
    for zone in _ZONES:
        if zone not in by_privacy:
            forbidden[zone] = _PRIVACY
        elif zone not in by_rule:
            forbidden[zone] = _RULE
        elif zone not in by_route:
            forbidden[zone] = _ROUTE_OVERRIDE
        else:
            forbidden[zone] = None if zone in by_mode else _MODE
    return forbidden


def by_state(backend: BackendSnapshot) -> Rejection | None:
    """What its state says against a backend."""
    return _BY_STATE.get(backend.state)


def by_breaker(backend: BackendSnapshot) -> Rejection | None:
    """What its breaker says: half open, one request at a time is let through."""
    breaker = backend.breaker
    if breaker is _CLOSED or (breaker is not _OPEN and backend.in_flight <= 0):
        return None
    return Rejection.BREAKER_OPEN


def by_heat_or_queue(backend: BackendSnapshot, load: int) -> Rejection | None:
    """What its heat says, then its queue; `load` is its `load_of`."""
    if backend.level is _CRITICAL:
        return Rejection.THERMAL_CRITICAL
    return Rejection.QUEUE_FULL if is_full(backend, load) else None


def lacks_feature(declared: tuple[str, ...], need: Need) -> bool:
    """Whether a feature that is needed is not among those that a model declares. Where it declares none, OpenAI's own
    are taken for granted, because a server without them says so; those whose fields it would ignore are not."""
    return not (need.features.issubset(declared) if declared else need.features.isdisjoint(OWN_FEATURES))


def load_of(backend: BackendSnapshot) -> int:
    """Requests at the backend: what it reported, or what this router has open there if that is more (a report is
    up to one interval old)."""
    reported = (backend.slots_busy or 0) + (backend.queued or 0)
    return reported if reported > backend.in_flight else backend.in_flight


def is_full(backend: BackendSnapshot, load: int) -> bool:
    """Whether one more request would be refused, as far as figures are known."""
    limit = backend.queue_limit
    if limit is None:
        return False
    if backend.slots_total is None:
        return backend.queued is not None and backend.queued >= max(limit, 1)
    return load >= backend.slots_total + limit
