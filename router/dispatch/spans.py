"""What a span says of one attempt at a backend: whom it asked, why, and how it ended."""

from __future__ import annotations

from router.audit.account import Attempt
from router.dispatch.job import Job
from router.dispatch.verdict import Outcome
from router.policy.model import Candidate
from shared.tracing import conventions as c
from shared.tracing.port import Facts, Span

_NO_FAILURE = frozenset({Outcome.OK, Outcome.CLIENT_LEFT, Outcome.HEDGE_LOST})


def begun(job: Job, candidate: Candidate, attempt: Attempt, number: int) -> Span:
    """The span of an attempt, the `number`-th of its request counted from 1."""
    if not job.span.recording:
        return job.span
    asked = c.asked_facts(job.path, job.model, stream=job.stream, url=candidate.url)
    own: Facts = {
        c.TIER: candidate.zone.tier,
        c.ZONE: candidate.zone,
        c.BACKEND: candidate.backend_id,
        c.ATTEMPT: number,
        c.ATTEMPT_KIND: attempt.kind,
    }
    return job.span.child(c.span_name(job.path, job.model), kind="client", facts={**asked, **own})


def ended(span: Span, attempt: Attempt, outcome: Outcome, output_tokens: int | None) -> None:
    """Say how the attempt ended; `output_tokens` as far as the backend told them."""
    if not span.recording:
        return
    first_chunk_s = None if attempt.ttft_ms is None else attempt.ttft_ms / 1000
    told = c.answered_facts(output_tokens=output_tokens, first_chunk_s=first_chunk_s)
    span.note({**told, c.HTTP_STATUS: attempt.status, c.OUTCOME: outcome})
    if outcome not in _NO_FAILURE:
        span.fail(outcome)
    span.end()
