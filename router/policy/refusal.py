"""Turns a decision without candidates into the one typed error that the caller gets."""

from __future__ import annotations

from router.policy.model import Decision, DecisionFacts, Reason, Rejection, Route
from shared.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    IsthmusError,
    NoCapacity,
    NotFound,
    PolicyBlocked,
    PrivacyUnavailable,
)
from shared.openai.facts import Endpoint, RequestFacts

_PROMPT_FIELD = {
    Endpoint.CHAT: "messages",
    Endpoint.COMPLETIONS: "prompt",
    Endpoint.EMBEDDINGS: "input",
    Endpoint.RESPONSES: "input",
    Endpoint.MESSAGES: "messages",
}
_FEATURE_FIELDS = {
    "tools": "tools",
    "structured_output": "response_format",
    "logprobs": "logprobs",
    "continuation": "continue_final_message",
    "lora": "lora",
}


def refusal(decision: Decision, facts: DecisionFacts) -> IsthmusError:
    """The error for a `decision` that has no candidates. Messages hold no text of the request."""
    match decision.reason:
        case Reason.BLOCKED:
            return PolicyBlocked("Policy does not allow this content on any tier.")
        case Reason.POLICY_RULE:
            return PolicyBlocked("A policy rule keeps this request out of the tier that was asked for.")
        case Reason.MODEL_NOT_FOUND:
            return NotFound("No backend serves this model.", param="model", code="model_not_found")
        case Reason.FEATURE_NOT_SERVED:
            return InvalidRequest(
                "No allowed backend supports what this request asks for: "
                f"{', '.join(sorted(facts.request.features))}.",
                param=_feature_field(facts.request),
                code="unsupported_feature",
            )  # fmt: skip
        case Reason.CONTEXT_LENGTH_EXCEEDED:
            return _too_long(decision, facts)
        case Reason.PRIVACY_UNAVAILABLE:
            unavailable = PrivacyUnavailable(
                f"This content must stay on the edge, and {_why_not_there(decision)}.",
                retry_after_s=decision.retry_after_s,
            )
            # No wait brings such content there.
            return unavailable.for_good() if decision.route is Route.CLOUD else unavailable
        case _:
            return NoCapacity(_no_capacity(decision), retry_after_s=decision.retry_after_s)


def _feature_field(request: RequestFacts) -> str | None:
    """The first field that asks for a feature."""
    if request.endpoint is Endpoint.RESPONSES and request.features == {"structured_output"}:
        return "text"
    return next((field for feature, field in _FEATURE_FIELDS.items() if feature in request.features), None)


def _too_long(decision: Decision, facts: DecisionFacts) -> ContextLengthExceeded:
    """The output limit is at fault where the prompt alone would fit."""
    request, largest = facts.request, decision.largest_context_tokens
    fits = largest is not None and request.prompt_tokens_estimate < largest
    return ContextLengthExceeded(
        f"This request needs about {decision.needed_tokens} tokens; the largest allowed context is {largest} tokens.",
        param=request.max_tokens_field if fits and request.max_tokens else _PROMPT_FIELD[request.endpoint],
    )


def _why_not_there(decision: Decision) -> str:
    if decision.route is Route.CLOUD:
        return "the request asks for the cloud"
    if Rejection.WAIT_TOO_LONG in decision.rejected_counts:
        return "the line there is so long that its first token is not expected in time"
    return "no edge backend can serve it now"


def _no_capacity(decision: Decision) -> str:
    others = decision.rejected_counts.keys() <= {Rejection.ROUTE_OVERRIDE}
    if decision.route is not Route.AUTO and others:
        return f"This router knows no backend of the tier that was asked for ({decision.route})."
    if Rejection.WAIT_TOO_LONG in decision.rejected_counts:
        return "Where it could run, the line is so long that its first token is not expected in time."
    return "No eligible backend has room now."
