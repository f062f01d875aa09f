"""Explains a decision in sentences that a user understands."""

from __future__ import annotations

from router.policy.model import Candidate, Decision, Reason, Rejected, Rejection, Route
from shared.privacy import Action, PrivacyClass

_CLASS = {
    PrivacyClass.PUBLIC: "Nothing personal or secret was found in this request.",
    PrivacyClass.PERSONAL: "This request holds personal data.",
    PrivacyClass.SECRET: "This request holds a credential.",
    PrivacyClass.UNKNOWN: "This request could not be scanned as a whole, so it is treated as the strictest class.",
}
_ACTION = {
    Action.ANY: "It may run on any tier.",
    Action.MASK: "It may run on any tier; a cloud gets placeholders instead of what was found.",
    Action.EDGE_ONLY: "It must stay on the edge.",
    Action.BLOCK: "Policy refuses it on every tier.",
}
_REASON = {
    Reason.PREFERRED_TIER: "it is of the preferred tier and is expected to be fast enough",
    Reason.PRIVACY_REQUIRES_EDGE: "privacy requires the edge, and it is the best there",
    Reason.POLICY_RULE: "a policy rule allows no other place",
    Reason.ROUTE_OVERRIDE: "the caller chose this tier",
    Reason.EDGE_UNAVAILABLE: "no edge backend is ready with enough room for it",
    Reason.CLOUD_UNAVAILABLE: "no cloud backend is ready with enough room for it",
    Reason.EDGE_TOO_SLOW: "the edge is expected to miss the latency objective, or has just recovered from that",
    Reason.CLOUD_TOO_SLOW: "the cloud is expected to miss the latency objective, or has just recovered from that",
    Reason.FASTEST: "it is expected to finish first",
    Reason.TRIAL: "it has not been measured yet, and this request measures it",
    Reason.BLOCKED: "policy refuses this content",
    Reason.PRIVACY_UNAVAILABLE: "privacy rules out the cloud, and no edge backend can serve it now",
    Reason.NO_CAPACITY: "no eligible backend has room now",
    Reason.MODEL_NOT_FOUND: "no backend serves this model",
    Reason.CONTEXT_LENGTH_EXCEEDED: "it does not fit the context of any allowed backend",
    Reason.FEATURE_NOT_SERVED: "no allowed backend supports a feature that it asks for",
}
_REJECTION = {
    Rejection.PRIVACY: "privacy does not let this request leave the edge",
    Rejection.RULE: "a policy rule keeps this request out of its zone",
    Rejection.ROUTE_OVERRIDE: "the caller asked for another tier",
    Rejection.MODE: "the router's mode leaves this tier out",
    Rejection.NOT_READY: "it is starting, or has failed",
    Rejection.DRAINING: "it is being drained and takes nothing new",
    Rejection.STALE: "it has not reported for too long",
    Rejection.MODEL_NOT_SERVED: "it does not serve this model",
    Rejection.FEATURE_MISSING: "it does not support a feature that this request asks for",
    Rejection.CONTEXT_TOO_SMALL: "its context is too small for this request",
    Rejection.BREAKER_OPEN: "it failed repeatedly and is being left alone",
    Rejection.COOLING_DOWN: "it asked for a pause that has not passed yet",
    Rejection.THERMAL_CRITICAL: "it is too hot to take new work",
    Rejection.QUEUE_FULL: "its queue is full",
    Rejection.WAIT_TOO_LONG: "its line is so long that a first token is not expected in time",
}


LISTED = 20
"""Alternatives, and backends that were ruled out, that are named one by one; beyond that they are counted."""


def explain(decision: Decision, found: PrivacyClass | None = None) -> tuple[str, ...]:
    """Sentences in the order of the decision: class, action, rule, choice, alternatives, rejections. `found` is what
    the scanner concluded; None: the class that counted."""
    lines = [_class_of(decision, found), _ACTION[decision.action]]
    if decision.rule is not None:
        lines.append(f"It falls under the rule {decision.rule}{_cap(decision)}.")
    if decision.candidates:
        first = decision.candidates[0]
        lines.append(f"It goes to {_named(first)}, because {_REASON[decision.reason]}{_expected(first)}.")
        others = decision.candidates[1 : 1 + LISTED]
        lines.extend(f"If that fails before the first word: {_named(c)}{_expected(c)}." for c in others)
        if len(decision.candidates) > 1 + LISTED:
            lines.append(f"After these, {len(decision.candidates) - 1 - LISTED} more could serve it.")
    else:
        lines.append(f"It is refused: {_why_refused(decision)}.")
    lines.extend(f"Not {_named(r)}: {_REJECTION[r.reason]}." for r in decision.rejected[:LISTED])
    if len(decision.rejected) > LISTED:
        lines.extend(f"Not {n} backends in all: {_REJECTION[why]}." for why, n in decision.rejected_counts.items())
    return tuple(lines)


def _class_of(decision: Decision, found: PrivacyClass | None) -> str:
    """What counted, and whether the scanner found it or somebody asked for it."""
    counted = decision.privacy_class
    if found is None or found is counted:
        return _CLASS[counted]
    return f"{_CLASS[found]} It counts as {counted}, because the caller or an earlier turn of the session says so."


def _why_refused(decision: Decision) -> str:
    """The reason, or that the caller left out what the rest would have allowed."""
    left_out = any(each.reason is Rejection.ROUTE_OVERRIDE for each in decision.rejected)
    if decision.reason is Reason.PRIVACY_UNAVAILABLE and decision.route is Route.CLOUD:
        return "privacy rules out the cloud, and the caller everything else"
    if decision.reason is Reason.NO_CAPACITY and left_out:
        return f"nothing of the tier that the caller chose ({decision.route}) can serve it now"
    return _REASON[decision.reason]


def _cap(decision: Decision) -> str:
    cap = decision.rule_cap_tokens
    return "" if cap is None else f", which limits the answer to {cap} tokens"


def _named(backend: Candidate | Rejected) -> str:
    return f"{backend.backend_id} ({backend.zone})"


def _expected(candidate: Candidate) -> str:
    if candidate.predicted_ttft_ms is None:
        return ", not measured yet"
    tpot = "" if candidate.predicted_tpot_ms is None else f", then {candidate.predicted_tpot_ms:.0f} ms a token"
    money = "" if candidate.cost_money is None else f", for a price of {candidate.cost_money:.4g}"
    energy = "" if candidate.energy_joules is None else f", for {candidate.energy_joules:.0f} J"
    return f"; first token expected after {candidate.predicted_ttft_ms:.0f} ms{tpot}{money}{energy}"
