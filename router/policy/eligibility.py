"""Decides whether one backend may and can serve one request; the first check that fails names the reason.

Checks run in the order of `Rejection`: what may be (privacy, rules, caller, mode) before what can be. A missing figure
rejects nobody: a backend that reports no load is neither idle nor full, one that declares no context or no features of
OpenAI's own answers for itself.
"""

from __future__ import annotations

from router.policy.model import Rejection
from router.policy.need import Need
from shared.fleet import BackendSnapshot, BackendState, Breaker, ServedModel, ThermalLevel, Zone
from shared.openai.facts import OWN_FEATURES

# Looking up a member on an Enum class costs more than the comparison it is for: members are bound once.
_STARTING, _FAILED, _DRAINING = BackendState.STARTING, BackendState.FAILED, BackendState.DRAINING
_CLOSED, _OPEN = Breaker.CLOSED, Breaker.OPEN
_ZONES = tuple(Zone)
_CRITICAL = ThermalLevel.CRITICAL
_PRIVACY, _RULE = Rejection.PRIVACY, Rejection.RULE
_ROUTE_OVERRIDE, _MODE = Rejection.ROUTE_OVERRIDE, Rejection.MODE


def permission_rejections(
    by_privacy: frozenset[Zone], by_rule: frozenset[Zone], by_route: frozenset[Zone], by_mode: frozenset[Zone]
) -> dict[Zone, Rejection | None]:
    """For each zone, why no backend in it may be used, or None."""
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


def ability_rejection(
    backend: BackendSnapshot, served: ServedModel | None, need: Need, load: int, stale_after_ms: int, now_ms: int
) -> Rejection | None:
    """Why a permitted backend cannot serve now, or None. `served` is its entry for the model, `load` its `load_of`."""
    state = backend.state
    if state is _STARTING or state is _FAILED:
        return Rejection.NOT_READY
    if state is _DRAINING:
        return Rejection.DRAINING
    received = backend.received_ms
    if received is not None and now_ms - received > stale_after_ms:
        return Rejection.STALE
    if served is None:
        return Rejection.MODEL_NOT_SERVED
    if need.features and lacks_feature(served.features, need):
        return Rejection.FEATURE_MISSING
    context = served.context_tokens
    if context is not None and need.certain_tokens > context:
        return Rejection.CONTEXT_TOO_SMALL
    breaker = backend.breaker
    if breaker is not _CLOSED and (breaker is _OPEN or backend.in_flight > 0):
        return Rejection.BREAKER_OPEN
    cooling = backend.cooling_until_ms
    if cooling is not None and now_ms < cooling:
        return Rejection.COOLING_DOWN
    if backend.level is _CRITICAL:
        return Rejection.THERMAL_CRITICAL
    if is_full(backend, load):
        return Rejection.QUEUE_FULL
    return None


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
