"""Counts what became of requests, in a plain table; the metrics learn of it when somebody reads them."""

from __future__ import annotations

from collections import defaultdict

from router.audit.account import Account
from router.policy.model import Candidate, Decision
from shared.telemetry import Registry, RouterMetrics


class Tally:
    """The metrics of requests. All labels come from closed sets, which bounds the table."""

    def __init__(self, metrics: RouterMetrics, registry: Registry) -> None:
        """`registry` is the one that holds `metrics`."""
        self._metrics = metrics
        self._in_flight = 0
        self._counts: defaultdict[tuple[str, ...], int] = defaultdict(int)
        self._ttft = {tier: metrics.ttft.labels(tier) for tier in ("edge", "cloud")}
        self._ttft_predicted = {tier: metrics.ttft_predicted.labels(tier) for tier in ("edge", "cloud")}
        registry.ask_first(self.tell)

    def began(self) -> None:
        """A request came in."""
        self._in_flight += 1

    def decided(self, decision: Decision) -> None:
        """It was decided on."""
        tier = decision.candidates[0].zone.tier if decision.candidates else "none"
        self._counts["decisions", decision.privacy_class, tier, decision.reason] += 1
        for reason, count in decision.rejected_counts.items():
            self._counts["rejections", reason] += count

    def first_content(self, candidate: Candidate, ttft_ms: float | None) -> None:
        """A backend has content to give, after `ttft_ms`."""
        if ttft_ms is None:
            return
        tier = candidate.zone.tier
        self._ttft[tier].observe(ttft_ms / 1000)
        if candidate.predicted_ttft_ms is not None:
            self._ttft_predicted[tier].observe(candidate.predicted_ttft_ms / 1000)

    def ended(self, account: Account, *, unfinished: str) -> None:
        """It is over; an attempt without an outcome counts as `unfinished`."""
        self._in_flight -= 1
        self._counts["requests", account.endpoint, account.outcome] += 1
        if account.classify_ms is not None:
            self._metrics.classify.observe(account.classify_ms / 1000)
        for attempt in account.attempts:
            self._counts["attempts", attempt.tier, attempt.outcome or unfinished] += 1

    def tell(self) -> None:
        """Bring the metrics up to date."""
        metrics, counts = self._metrics, self._counts
        counters = {
            "decisions": metrics.decisions,
            "rejections": metrics.rejections,
            "requests": metrics.requests,
            "attempts": metrics.attempts,
        }
        for (name, *labels), count in counts.items():
            counters[name].labels(*labels).inc(count)
        counts.clear()
        metrics.in_flight.set(self._in_flight)
