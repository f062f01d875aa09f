"""Says what the end of one attempt means: for the backend's breaker, for other candidates, and for the client."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How one attempt ended; the closed set of the `outcome` label and of the audit log."""

    OK = "ok"
    CLIENT_LEFT = "client_left"
    HEDGE_LOST = "hedge_lost"
    """Another backend, asked later, had content first."""
    REFUSED_REQUEST = "refused_request"
    """4xx that another backend would give too: passed through, never retried."""
    CONTEXT_EXCEEDED = "context_exceeded"
    """400 for length: a candidate with more room may still serve it."""
    UNSUPPORTED = "unsupported"
    """400 of an edge agent for what agents cannot do, in their own codes: a cloud may."""
    MODEL_GONE = "model_gone"
    """404 for a model that the backend was thought to serve, or for an API that it does not have."""
    RATE_LIMITED = "rate_limited"
    BUSY = "busy"
    FAILED = "failed"
    UNREACHABLE = "unreachable"
    CONNECT_TIMEOUT = "connect_timeout"
    FIRST_TOKEN_TIMEOUT = "first_token_timeout"  # noqa: S105 - a name, not a credential
    IDLE_TIMEOUT = "idle_timeout"
    ANSWER_TIMEOUT = "answer_timeout"
    BROKEN = "broken"
    """A stream that ended early or carried an error, or an answer that is none."""
    NOT_PERMITTED = "not_permitted"
    """No permit for this body: nothing was sent."""


class Effect(StrEnum):
    """What an outcome does to the breaker of the backend."""

    HEAL = "heal"
    NONE = "none"
    COUNT = "count"
    TRIP = "trip"


@dataclass(frozen=True, slots=True)
class Meaning:
    """`fails_over`: another candidate may be tried while no content was sent."""

    effect: Effect
    fails_over: bool


MEANINGS: dict[Outcome, Meaning] = {
    Outcome.OK: Meaning(Effect.HEAL, fails_over=False),
    Outcome.CLIENT_LEFT: Meaning(Effect.NONE, fails_over=False),
    Outcome.HEDGE_LOST: Meaning(Effect.NONE, fails_over=False),
    Outcome.REFUSED_REQUEST: Meaning(Effect.HEAL, fails_over=False),
    Outcome.CONTEXT_EXCEEDED: Meaning(Effect.HEAL, fails_over=True),
    Outcome.UNSUPPORTED: Meaning(Effect.HEAL, fails_over=True),
    Outcome.MODEL_GONE: Meaning(Effect.NONE, fails_over=True),
    Outcome.RATE_LIMITED: Meaning(Effect.NONE, fails_over=True),
    Outcome.BUSY: Meaning(Effect.NONE, fails_over=True),
    Outcome.FAILED: Meaning(Effect.COUNT, fails_over=True),
    # Nobody listens there: waiting for more failures would only cost more clients a detour.
    Outcome.UNREACHABLE: Meaning(Effect.TRIP, fails_over=True),
    Outcome.CONNECT_TIMEOUT: Meaning(Effect.TRIP, fails_over=True),
    Outcome.FIRST_TOKEN_TIMEOUT: Meaning(Effect.COUNT, fails_over=True),
    Outcome.IDLE_TIMEOUT: Meaning(Effect.COUNT, fails_over=True),
    Outcome.ANSWER_TIMEOUT: Meaning(Effect.COUNT, fails_over=True),
    Outcome.BROKEN: Meaning(Effect.COUNT, fails_over=True),
    Outcome.NOT_PERMITTED: Meaning(Effect.NONE, fails_over=True),
}


_BEYOND_AGENTS = frozenset(
    {"unsupported_parameter", "unsupported_content", "unsupported_schema", "schema_too_complex", "unsupported_model"}
)


def outcome_of_status(status: int, *, code: str | None, has_retry_after: bool, from_agent: bool = False) -> Outcome:
    """The outcome of an answer that is no success; `from_agent` says that an edge agent sent it."""
    if status == 429:
        return Outcome.RATE_LIMITED
    if status == 408:
        return Outcome.BUSY
    if status == 400 and code == "context_length_exceeded":
        return Outcome.CONTEXT_EXCEEDED
    if from_agent and status == 400 and code in _BEYOND_AGENTS:
        return Outcome.UNSUPPORTED
    if status == 404 and code in ("model_not_found", "model_not_served", "unknown_route"):
        return Outcome.MODEL_GONE
    if 400 <= status < 500:
        return Outcome.REFUSED_REQUEST
    if status == 529:  # "overloaded", as several clouds say it
        return Outcome.BUSY
    # A backend that says when to come back is alive and full; one that does not has failed.
    return Outcome.BUSY if status == 503 and has_retry_after else Outcome.FAILED
