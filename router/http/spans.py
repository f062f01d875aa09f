"""What the spans of a request say: what was found, what was decided, how it ended."""

from __future__ import annotations

from router.audit.account import Account
from router.policy.model import Decision
from router.privacy.model import Classification
from shared.tracing import conventions as c
from shared.tracing.port import Facts, Span

_NO_FAILURE = frozenset({"ok", "client_error", "client_left"})


def found(span: Span, found: Classification) -> None:
    """The scanner's conclusion: kinds and positions stay in the audit log, and values nowhere."""
    if span.recording:
        span.note(
            {c.CLASS_FOUND: found.privacy_class, c.SCAN_COMPLETE: found.complete, c.FINDINGS: len(found.entities)}
        )


def decided(span: Span, decision: Decision) -> None:
    """Which way, and why."""
    if span.recording:
        span.note(
            {
                c.CLASS: decision.privacy_class,
                c.ACTION: decision.action,
                c.MODE: decision.mode,
                c.REASON: decision.reason,
                c.RULE: decision.rule,
                c.POLICY: decision.policy_digest,
                c.CANDIDATES: len(decision.candidates),
                c.REJECTED: sum(decision.rejected_counts.values()),
            }
        )


def closed(account: Account) -> None:
    """How the request ended. A caller's own fault and a caller who left are no failure of the router."""
    span = account.span
    if not span.recording:
        return
    span.note({**_asked(account), **_ended(account)})
    if account.outcome not in _NO_FAILURE:
        span.fail(account.code or account.outcome)


def _asked(account: Account) -> Facts:
    # A model that nobody serves is the caller's own text: the account does not hold it.
    return c.asked_facts(account.endpoint, account.model, stream=account.stream is True)


def _ended(account: Account) -> Facts:
    last = account.attempts[-1] if account.attempts else None
    return {
        c.DECISION_ID: account.decision_id,
        c.OUTCOME: account.outcome,
        c.CODE: account.code,
        c.CLASS: account.privacy_class,
        c.REASON: account.decision.reason if account.decision else None,
        c.ATTEMPTS: len(account.attempts),
        c.RESUMED: account.resumed or None,
        c.TIER: last.tier if last else None,
        c.BACKEND: last.backend_id if last else None,
        c.FIRST_CHUNK_S: account.ttft_ms / 1000 if account.ttft_ms is not None else None,
    }
