"""Counts what became of requests; a counter of given labels is looked up once, not with each request."""

from __future__ import annotations

import functools
from typing import Any

from router.audit.account import Account
from router.policy.model import Candidate, Decision
from shared.telemetry import RouterMetrics


def _with_labels(metric: Any, *labels: str) -> Any:
    return metric.labels(*labels)


class Tally:
    """The metrics of requests. All labels come from closed sets, which bounds what is remembered."""

    def __init__(self, metrics: RouterMetrics) -> None:
        self._metrics = metrics
        self._of = functools.cache(_with_labels)

    def began(self) -> None:
        """A request came in."""
        self._metrics.in_flight.inc()

    def decided(self, decision: Decision) -> None:
        """It was decided on."""
        metrics = self._metrics
        tier = decision.candidates[0].zone.tier if decision.candidates else "none"
        self._of(metrics.decisions, decision.privacy_class, tier, decision.reason).inc()
        for reason, count in decision.rejected_counts.items():
            self._of(metrics.rejections, reason).inc(count)

    def first_content(self, candidate: Candidate, ttft_ms: float | None) -> None:
        """A backend has content to give, after `ttft_ms`."""
        if ttft_ms is None:
            return
        tier = candidate.zone.tier
        self._of(self._metrics.ttft, tier).observe(ttft_ms / 1000)
        if candidate.predicted_ttft_ms is not None:
            self._of(self._metrics.ttft_predicted, tier).observe(candidate.predicted_ttft_ms / 1000)

    def ended(self, account: Account, *, unfinished: str) -> None:
        """It is over; an attempt without an outcome counts as `unfinished`."""
        metrics = self._metrics
        metrics.in_flight.dec()
        self._of(metrics.requests, account.endpoint, account.outcome).inc()
        if account.classify_ms is not None:
            metrics.classify.observe(account.classify_ms / 1000)
        for attempt in account.attempts:
            self._of(metrics.attempts, attempt.tier, attempt.outcome or unfinished).inc()
