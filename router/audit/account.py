"""Everything that is written down about one request, filled in as it goes its way; holds no text of the request."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from router.audit.evidence import Evidence, write_evidence
from router.policy.model import Decision
from router.privacy.model import Classification
from shared.privacy import PrivacyClass
from shared.tracing.port import NO_SPAN, Span

LISTED = 64
"""Candidates and rejections that a record names one by one."""


class AttemptKind(StrEnum):
    """Why an attempt was made."""

    FIRST = "first"
    RETRY = "retry"
    """The one before came to nothing."""
    HEDGE = "hedge"
    """The one before was silent for long, and still runs."""
    RESUME = "resume"
    """The one before broke after content."""


@dataclass(slots=True)
class Attempt:
    """What is kept of one attempt at a backend. Times are milliseconds since it began; `outcome` is one of the
    dispatcher's closed set, None while the attempt runs."""

    backend_id: str
    tier: str
    outcome: str | None = None
    status: int | None = None
    ttft_ms: float | None = None
    duration_ms: float | None = None
    completion_tokens: int | None = None
    kind: AttemptKind = AttemptKind.FIRST


@dataclass(slots=True)
class Account:
    """One request. `asked_class` is the caller's header, `pinned_class` the strictest that its session had before;
    `loosened` says that a key with the scope widened the class.
    Times are milliseconds: `began_ms` on the router's monotonic clock, the others durations."""

    decision_id: str
    request_id: str
    endpoint: str
    began_unix_s: float
    began_ms: int
    span: Span = field(default=NO_SPAN, repr=False)
    """The same request in the trace; of it, only the trace's id is recorded."""
    key_name: str | None = None
    model: str | None = None
    stream: bool | None = None
    body_digest: str | None = None
    body_bytes: int | None = None
    prompt_tokens_estimate: int | None = None
    classification: Classification | None = None
    privacy_class: PrivacyClass | None = None
    asked_class: PrivacyClass | None = None
    pinned_class: PrivacyClass = PrivacyClass.PUBLIC
    loosened: bool = False
    decision: Decision | None = None
    evidence: Evidence | None = None
    classify_ms: float | None = None
    ttft_ms: float | None = None
    status: int | None = None
    code: str | None = None
    outcome: str = "error"
    limit_headers: dict[str, str] = field(default_factory=dict)
    """How the caller's key stands, for the answer; not recorded."""
    attempts: list[Attempt] = field(default_factory=list)
    resumed: int = 0
    """How often the stream went on at another backend after content."""

    def record(self, now_ms: int) -> dict[str, Any]:
        """The record as JSON values."""
        return {
            "kind": "request",
            "at": round(self.began_unix_s, 3),
            "decision_id": self.decision_id,
            "request_id": self.request_id,
            "trace_id": self.span.trace_id,
            "endpoint": self.endpoint,
            "key": self.key_name,
            "model": self.model,
            "stream": self.stream,
            "outcome": self.outcome,
            "status": self.status,
            "code": self.code,
            "body": self.body_digest,
            "body_bytes": self.body_bytes,
            "prompt_tokens_estimate": self.prompt_tokens_estimate,
            **self._privacy(),
            **self._decision(),
            "attempts": [_attempt(each) for each in self.attempts],
            "resumed": self.resumed,
            "classify_ms": self.classify_ms,
            "ttft_ms": self.ttft_ms,
            "total_ms": now_ms - self.began_ms,
        }

    def _privacy(self) -> dict[str, Any]:
        found = self.classification
        return {
            "class": self.privacy_class,
            "class_found": found.privacy_class if found else None,
            "class_asked": self.asked_class,
            "class_pinned": self.pinned_class,
            "class_loosened": self.loosened,
            "scan_complete": found.complete if found else None,
            "scan_cause": found.cause if found else None,
            "entities": [
                {"kind": e.kind, "position": e.position, "start": e.start, "end": e.end} for e in found.entities
            ]
            if found
            else [],
        }

    def _decision(self) -> dict[str, Any]:
        decision, evidence = self.decision, self.evidence
        if decision is None or evidence is None:
            return {"decision": None}
        rested_on = write_evidence(evidence, decision, model_known=self.model is not None)
        return {"decision": decision_facts(decision), **rested_on}


def decision_facts(decision: Decision) -> dict[str, Any]:
    """A decision as JSON values, for the log and for `explain`. Of a large fleet the first of each list are named, and
    `rejected_counts` has them all."""
    return {
        "class": decision.privacy_class,
        "action": decision.action,
        "scan_answers": decision.scan_answers,
        "mask_kinds": None if decision.mask_kinds is None else sorted(decision.mask_kinds),
        "mode": decision.mode,
        "route": decision.route,
        "rule": decision.rule,
        "reason": decision.reason,
        "allowed_zones": sorted(decision.allowed_zones),
        "candidates": [
            {
                "backend": c.backend_id,
                "zone": c.zone,
                "level": c.level,
                "predicted_ttft_ms": c.predicted_ttft_ms,
                "predicted_tpot_ms": c.predicted_tpot_ms,
                "output_cap_tokens": c.output_cap_tokens,
                "cost_money": c.cost_money,
                "energy_joules": c.energy_joules,
            }
            for c in decision.candidates[:LISTED]
        ],
        "rejected": [{"backend": r.backend_id, "zone": r.zone, "reason": r.reason} for r in decision.rejected[:LISTED]],
        "rejected_counts": {str(reason): n for reason, n in sorted(decision.rejected_counts.items())},
        "needed_tokens": decision.needed_tokens,
        "largest_context_tokens": decision.largest_context_tokens,
        "output_cap_tokens": decision.output_cap_tokens,
        "policy": decision.policy_digest,
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "backend": attempt.backend_id,
        "tier": attempt.tier,
        "kind": attempt.kind,
        "outcome": attempt.outcome,
        "status": attempt.status,
        "ttft_ms": attempt.ttft_ms,
        "duration_ms": attempt.duration_ms,
        "completion_tokens": attempt.completion_tokens,
    }
