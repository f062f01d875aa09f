"""What happened second by second: requests by tier, refusals, times to first token and per token."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from router.admin.quantiles import Sketch

KEPT_S = 900
"""Seconds of history."""
_WINDOW = 10
"""Points over which quantiles are taken: one second of a quiet router holds too few requests for any."""
TIERS = ("edge", "cloud")


@dataclass(slots=True)
class _Second:
    requests: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    ttft: dict[str, Sketch] = field(default_factory=lambda: {tier: Sketch() for tier in TIERS})
    tpot: dict[str, Sketch] = field(default_factory=lambda: {tier: Sketch() for tier in TIERS})

    def told(self) -> dict[str, Any]:
        """As JSON values."""
        counts = {"requests": self.requests, "outcomes": self.outcomes, "refused": self.refused}
        times = {"ttft": self.ttft, "tpot": self.tpot}
        return {name: dict(count) for name, count in counts.items()} | {
            name: {tier: sketch.plain() for tier, sketch in by_tier.items()} for name, by_tier in times.items()
        }

    def add(self, told: Mapping[str, Any]) -> None:
        """Add what `told` of another."""
        for count, name in ((self.requests, "requests"), (self.outcomes, "outcomes"), (self.refused, "refused")):
            count.update(told[name])
        for by_tier, name in ((self.ttft, "ttft"), (self.tpot, "tpot")):
            for tier, sketch in by_tier.items():
                sketch.include(told[name][tier])


class LiveWindow:
    """The last `KEPT_S` points, and the one that is being filled."""

    def __init__(self) -> None:
        self._now = _Second()
        self._recent: deque[_Second] = deque(maxlen=_WINDOW)
        self._points: deque[dict[str, Any]] = deque(maxlen=KEPT_S)

    def take(self, record: Mapping[str, Any]) -> None:
        """Count one finished request by its audit record."""
        now, attempts = self._now, record["attempts"]
        tier = attempts[-1]["tier"] if attempts else "none"
        now.requests[tier] += 1
        now.outcomes[record["outcome"]] += 1
        if record["status"] is not None and record["status"] >= 400:
            now.refused[record["code"] or str(record["status"])] += 1
        if tier in TIERS and record["outcome"] == "ok":
            if record["ttft_ms"] is not None:
                now.ttft[tier].add(record["ttft_ms"])
            per_token_ms = _per_token_ms(attempts[-1])
            if per_token_ms is not None:
                now.tpot[tier].add(per_token_ms)

    def cut(self) -> dict[str, Any]:
        """End the running second for somebody else to add; it makes no point here."""
        done, self._now = self._now, _Second()
        return done.told()

    def add(self, told: Mapping[str, Any]) -> None:
        """Add to the running second what `cut` gave elsewhere."""
        self._now.add(told)

    def learn(self, points: Iterable[dict[str, Any]]) -> None:
        """Take over points that were made elsewhere, oldest first."""
        self._points.extend(points)

    def close(self, unix_s: float, elapsed_s: float, in_flight: int) -> dict[str, Any]:
        """End the running second, which took `elapsed_s`; its point. Rates are requests per second, times
        milliseconds, each time a pair of median and 95th percentile over the last ten points."""
        done, self._now = self._now, _Second()
        self._recent.append(done)
        rate = 1 / elapsed_s if elapsed_s > 0 else 0.0
        point = {
            "at": round(unix_s, 1),
            "requests": {tier: done.requests[tier] for tier in (*TIERS, "none")},
            "requests_per_s": {tier: round(done.requests[tier] * rate, 2) for tier in (*TIERS, "none")},
            "failed_per_s": round((done.outcomes.total() - done.outcomes["ok"]) * rate, 2),
            "refused": dict(done.refused),
            "in_flight": in_flight,
            "ttft_ms": {tier: _pair([each.ttft[tier] for each in self._recent]) for tier in TIERS},
            "tpot_ms": {tier: _pair([each.tpot[tier] for each in self._recent]) for tier in TIERS},
        }
        self._points.append(point)
        return point

    def points(self, count: int = KEPT_S) -> list[dict[str, Any]]:
        """The last `count` points, oldest first."""
        return list(self._points)[-count:]


def _per_token_ms(attempt: Mapping[str, Any]) -> float | None:
    """Milliseconds per token after the first one, of a whole answer."""
    tokens, ttft, whole = attempt["completion_tokens"], attempt["ttft_ms"], attempt["duration_ms"]
    if tokens is None or tokens < 2 or ttft is None or whole is None or whole <= ttft:
        return None
    return float((whole - ttft) / (tokens - 1))


def _pair(sketches: list[Sketch]) -> list[float | None]:
    whole = Sketch.together(sketches)
    return [whole.quantile(0.5), whole.quantile(0.95)]
