"""Turns a decision without candidates into the one typed error that the caller gets."""

from __future__ import annotations

from router.policy.model import Decision, DecisionFacts, Reason
from shared.errors import (
    ContextLengthExceeded,
    InvalidRequest,
    IsthmusError,
    NoCapacity,
    NotFound,
    PolicyBlocked,
    PrivacyUnavailable,
)
from shared.openai.facts import Endpoint

_PROMPT_FIELD = {Endpoint.CHAT: "messages", Endpoint.COMPLETIONS: "prompt", Endpoint.EMBEDDINGS: "input"}


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
                code="unsupported_feature",
            )  # fmt: skip
        case Reason.CONTEXT_LENGTH_EXCEEDED:
            return ContextLengthExceeded(
                f"This request needs about {decision.needed_tokens} tokens; the largest allowed context is "
                f"{decision.largest_context_tokens} tokens.",
                param=_PROMPT_FIELD[facts.request.endpoint],
            )
        case Reason.PRIVACY_UNAVAILABLE:
            return PrivacyUnavailable(
                "This content must stay on the edge, and no edge backend can serve it now.",
                retry_after_s=decision.retry_after_s,
            )
        case _:
            return NoCapacity("No eligible backend has room now.", retry_after_s=decision.retry_after_s)
