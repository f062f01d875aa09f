"""Decides where one request runs: privacy, rules, the caller, eligibility, score, order; and why a backend is out."""

from __future__ import annotations

import math

from router.policy import ordering, zones
from router.policy.eligibility import permission_rejections
from router.policy.listed import Listed
from router.policy.model import Candidate, Decision, DecisionFacts, Policy, Reason, Rejection, Route
from router.policy.need import need_of
from router.policy.question import UNHELD_MS, Question, Shortage, Survey, View, price_of
from router.policy.terms import Terms, terms_of
from shared.fleet import FleetSnapshot, Zone
from shared.privacy import Action

_CLOUD = Zone.CLOUD
_LONGEST_RETRY_S = 300
"""Farther ahead than this nobody can say how long a line will be."""


def decide(
    facts: DecisionFacts, fleet: FleetSnapshot, policy: Policy, now_ms: int, view: View | None = None
) -> Decision:
    """The decision for one request at `now_ms` of the router's monotonic clock.

    Pure and deterministic: the same values give the same decision, in whatever order the fleet is listed. No step
    re-admits what an earlier one removed; every backend is a candidate or carries exactly one rejection. `view` is the
    fleet as columns, where it was arranged so: the decision is the same, and takes less time in a large fleet.
    """
    terms = terms_of(facts, policy)
    by_route = zones.zones_of_route(facts.route)
    asked = _question(facts, fleet, policy, terms, by_route, now_ms)
    view = Listed(fleet.backends) if view is None else view
    found = view.survey(asked)
    first, retry_after_s = None, 1
    if found.candidates:
        first = found.candidates[0]
        reason = _reason_for_first(first, found, asked, terms, facts.route)
    else:
        shortage = view.shortage(asked)
        reason = _reason_for_none(shortage, found, asked, terms, facts.route)
        retry_after_s = _retry_after_s(shortage, now_ms)
    return Decision(
        facts.privacy_class,
        terms.action,
        terms.mode,
        facts.route,
        terms.by_privacy & terms.by_rule & by_route,
        found.candidates,
        found.rejected,
        reason,
        first.output_cap_tokens if first else None,
        found.largest_context_tokens,
        asked.need.likely_tokens,
        policy.digest,
        retry_after_s,
        terms.rule,
        terms.output_cap_tokens,
        terms.mask_kinds,
        terms.scan_answers,
        terms.resume,
        terms.hedge_ms,
        found.rejected_counts,
    )


def _question(
    facts: DecisionFacts, fleet: FleetSnapshot, policy: Policy, terms: Terms, by_route: frozenset[Zone], now_ms: int
) -> Question:
    need = need_of(facts.request, policy.default_output_tokens, terms.output_cap_tokens)
    wait_limit_ms = policy.wait_limit_ms(stream=facts.request.stream)
    return Question(
        need,
        permission_rejections(terms.by_privacy, terms.by_rule, by_route, zones.zones_of_mode(terms.mode)),
        ordering.bar_of(policy, terms.mode, fleet.incumbent, now_ms),
        policy.slo.tpot_ms,
        policy.stale_after_ms,
        terms.output_cap_tokens,
        price_of(policy.cost, need, cloud=False),
        price_of(policy.cost, need, cloud=True),
        now_ms,
        wait_limit_ms,
        wait_limit_ms * policy.shared_line_ratio if 0 < wait_limit_ms < UNHELD_MS else UNHELD_MS,
    )


def _reason_for_first(first: Candidate, found: Survey, asked: Question, terms: Terms, route: Route) -> Reason:
    return ordering.reason_for_first(
        "cloud" if first.zone is _CLOUD else "edge",
        by_privacy=terms.by_privacy != zones.ANYWHERE,
        by_rule=terms.by_rule != zones.ANYWHERE,
        route=route,
        bar=asked.bar,
        # Agents are all that a line rules out: the edge is there, and too slow.
        preferred_is_slow=found.preferred_is_slow
        or (asked.bar.preferred_tier == "edge" and Rejection.WAIT_TOO_LONG in found.rejected_counts),
        is_trial=found.first_is_trial,
    )


def _reason_for_none(shortage: Shortage, found: Survey, asked: Question, terms: Terms, route: Route) -> Reason:
    """Which refusal the caller gets. What asking again cannot mend comes before what it can."""
    if terms.action is Action.BLOCK:
        return Reason.BLOCKED
    if route is Route.CLOUD and terms.by_privacy != zones.ANYWHERE:
        return Reason.PRIVACY_UNAVAILABLE
    if not terms.by_privacy & terms.by_rule & zones.zones_of_route(route):
        return Reason.POLICY_RULE
    if shortage.model_unknown:
        return Reason.MODEL_NOT_FOUND
    if shortage.feature_missing:
        return Reason.FEATURE_NOT_SERVED
    largest = found.largest_context_tokens
    if largest is not None and not shortage.context_open_ended and asked.need.certain_tokens > largest:
        return Reason.CONTEXT_LENGTH_EXCEEDED
    if Rejection.PRIVACY in found.rejected_counts:
        return Reason.PRIVACY_UNAVAILABLE
    return Reason.NO_CAPACITY


def _retry_after_s(shortage: Shortage, now_ms: int) -> int:
    """Whole seconds until the first cooling backend may be asked again, or the shortest line is short enough; 1 where
    another may be free sooner."""
    if shortage.excess_ms is not None:
        return max(1, math.ceil(min(shortage.excess_ms / 1000, _LONGEST_RETRY_S)))
    until_ms = shortage.cooling_until_ms
    return 1 if until_ms is None else max(1, -(-(until_ms - now_ms) // 1000))
