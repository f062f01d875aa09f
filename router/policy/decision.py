"""Decides where one request runs: privacy, the caller, eligibility, score, order; and why each backend is out."""

from __future__ import annotations

from collections.abc import Mapping

from router.policy import ordering, zones
from router.policy.eligibility import ability_rejection, lacks_feature, load_of, permission_rejections
from router.policy.model import Candidate, Decision, DecisionFacts, Policy, Reason, Rejected, Rejection, Route
from router.policy.need import Need, need_of
from router.policy.scoring import predict
from shared.fleet import BackendSnapshot, BackendState, FleetSnapshot, ServedModel, Zone
from shared.privacy import Action

_NO_PERMISSION = frozenset({Rejection.PRIVACY, Rejection.ROUTE_OVERRIDE, Rejection.MODE})


def decide(facts: DecisionFacts, fleet: FleetSnapshot, policy: Policy, now_ms: int) -> Decision:
    """The decision for one request at `now_ms` of the router's monotonic clock.

    Pure and deterministic: the same values give the same decision, in whatever order the fleet is listed. No step
    re-admits what an earlier one removed; every backend is a candidate or carries exactly one rejection.
    """
    action = zones.action_for(policy, facts.privacy_class, maskable=facts.maskable)
    by_privacy, by_route = zones.zones_of_action(action), zones.zones_of_route(facts.route)
    forbidden = permission_rejections(by_privacy, by_route, zones.zones_of_mode(policy.mode))
    need = need_of(facts.request, policy)
    bar = ordering.bar_of(policy, fleet.incumbent, now_ms)
    largest: int | None = None
    rejected: list[Rejected] = []
    ordered: list[tuple[ordering.Rank, Candidate]] = []
    for backend in fleet.backends:
        served = backend.model(need.model)
        load = load_of(backend)
        reason = forbidden[backend.zone]
        if reason is None:
            if served is not None and served.context_tokens is not None and served.context_tokens > (largest or 0):
                largest = served.context_tokens
            reason = ability_rejection(backend, served, need, load, policy.stale_after_ms, now_ms)
        if reason is not None:
            rejected.append(Rejected(backend.backend_id, backend.zone, reason))
        elif served is not None:
            ordered.append(_candidate(backend, served, need, load, policy, bar))
    ordered.sort(key=_rank_of)
    rejected.sort(key=_id_of)
    allowed = by_privacy & by_route
    if ordered:
        why = ordering.reason_for_first(
            ordered, restricted=by_privacy != zones.ANYWHERE, route=facts.route, bar=bar
        )  # fmt: skip
    else:
        why = _reason_for_none(fleet, rejected, forbidden, need, action, facts.route, largest)
    return Decision(
        privacy_class=facts.privacy_class,
        action=action,
        mode=policy.mode,
        route=facts.route,
        allowed_zones=allowed,
        candidates=tuple([candidate for _, candidate in ordered]),
        rejected=tuple(rejected),
        reason=why,
        output_cap_tokens=ordered[0][1].output_cap_tokens if ordered else None,
        largest_context_tokens=largest,
        needed_tokens=need.likely_tokens,
        policy_digest=policy.digest,
        retry_after_s=1 if ordered else _retry_after_s(fleet, rejected, now_ms),
    )


def _candidate(
    backend: BackendSnapshot, served: ServedModel, need: Need, load: int, policy: Policy, bar: ordering.Bar
) -> tuple[ordering.Rank, Candidate]:
    prediction = predict(backend, need, load, policy.slo.tpot_ms)
    candidate = Candidate(
        backend.backend_id,
        backend.zone,
        backend.url,
        prediction[0],
        prediction[1],
        backend.level,
        backend.output_cap_tokens,
    )
    return ordering.rank(backend, served, need, load, prediction, bar), candidate


def _rank_of(pair: tuple[ordering.Rank, Candidate]) -> ordering.Rank:
    return pair[0]


def _id_of(rejected: Rejected) -> str:
    return rejected.backend_id


def _reason_for_none(
    fleet: FleetSnapshot,
    rejected: list[Rejected],
    forbidden: Mapping[Zone, Rejection | None],
    need: Need,
    action: Action,
    route: Route,
    largest: int | None,
) -> Reason:
    """Which refusal the caller gets. What asking again cannot mend comes before what it can."""
    if action is Action.BLOCK:
        return Reason.BLOCKED
    if route is Route.CLOUD and zones.zones_of_action(action) != zones.ANYWHERE:
        return Reason.PRIVACY_UNAVAILABLE
    if _known_to_none(fleet, need):
        return Reason.MODEL_NOT_FOUND
    served = [s for b in fleet.backends if forbidden[b.zone] is None and (s := b.model(need.model)) is not None]
    if served and all(lacks_feature(s, need) for s in served):
        return Reason.FEATURE_NOT_SERVED
    open_ended = any(s.context_tokens is None for s in served)
    if largest is not None and not open_ended and need.certain_tokens > largest:
        return Reason.CONTEXT_LENGTH_EXCEEDED
    if any(r.reason is Rejection.PRIVACY for r in rejected):
        return Reason.PRIVACY_UNAVAILABLE
    return Reason.NO_CAPACITY


def _known_to_none(fleet: FleetSnapshot, need: Need) -> bool:
    """Whether every backend says what it serves and none serves the model; an empty fleet says nothing."""
    return bool(fleet.backends) and all(
        b.models and b.state is not BackendState.STARTING and b.model(need.model) is None for b in fleet.backends
    )


def _retry_after_s(fleet: FleetSnapshot, rejected: list[Rejected], now_ms: int) -> int:
    """Whole seconds until the first cooling backend may be asked again; 1 where another may be free sooner."""
    permitted = [r for r in rejected if r.reason not in _NO_PERMISSION]
    cooling = {r.backend_id for r in permitted if r.reason is Rejection.COOLING_DOWN}
    if not cooling or len(cooling) < len(permitted):
        return 1
    until_ms = [b.cooling_until_ms for b in fleet.backends if b.backend_id in cooling]
    return max(1, -(-(min(u for u in until_ms if u is not None) - now_ms) // 1000))
