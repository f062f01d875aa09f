"""Adds up outcomes and tells percentiles of the good ones and counts of each way to fail."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from loadtests.streaming import Outcome

MEASURES = ("ttft_ms", "total_ms", "tpot_ms")
_PERCENTS = (50, 90, 95, 99)


class Ledger:
    """Every good answer's times exactly (8 bytes each), and how many failed in which way."""

    def __init__(self) -> None:
        self._good: dict[str, array[float]] = {measure: array("d") for measure in MEASURES}
        self._failures: Counter[str] = Counter()
        self._tiers: Counter[str] = Counter()
        self._begun = 0
        self._succeeded = 0
        self._output_tokens = 0

    def begin(self) -> None:
        """Count a request that was sent; one that is never added was cut off by the end of the run."""
        self._begun += 1

    def add(self, outcome: Outcome) -> None:
        """Count one request: its times if it was good, its failure if not."""
        if outcome.failure is not None:
            self._failures[outcome.label] += 1
            return
        self._succeeded += 1
        self._tiers[outcome.tier or "unnamed"] += 1
        self._output_tokens += outcome.output_tokens or 0
        for measure in MEASURES:
            if (value := getattr(outcome, measure)) is not None:
                self._good[measure].append(value)

    def take(self) -> dict[str, Any]:
        """Everything so far as plain data, leaving the ledger empty; `merge` reads it."""
        data = {
            "good": {measure: list(values) for measure, values in self._good.items()},
            "failures": dict(self._failures),
            "tiers": dict(self._tiers),
            "begun": self._begun,
            "succeeded": self._succeeded,
            "output_tokens": self._output_tokens,
        }
        self.__init__()  # type: ignore[misc]
        return data

    def merge(self, data: dict[str, Any]) -> None:
        """Add what another process took from its ledger."""
        for measure, values in data["good"].items():
            self._good[measure].extend(values)
        self._failures.update(data["failures"])
        self._tiers.update(data["tiers"])
        self._begun += data["begun"]
        self._succeeded += data["succeeded"]
        self._output_tokens += data["output_tokens"]

    def summary(self, duration_s: float) -> dict[str, Any]:
        """The report of a run of `duration_s` seconds; rates count good answers alone."""
        failed = sum(self._failures.values())
        return {
            "duration_s": round(duration_s, 3),
            "requests": self._succeeded + failed,
            "unfinished": max(0, self._begun - self._succeeded - failed),
            "succeeded": self._succeeded,
            "failed": failed,
            "failures": dict(sorted(self._failures.items())),
            "tiers": dict(sorted(self._tiers.items())),
            "requests_per_s": _rate(self._succeeded, duration_s),
            "output_tokens_per_s": _rate(self._output_tokens, duration_s),
            **{measure: _spread(values) for measure, values in self._good.items()},
        }


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` % of the values do not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def _spread(values: Iterable[float]) -> dict[str, float | int]:
    ordered = sorted(values)
    if not ordered:
        return {"count": 0}
    points = {f"p{percent}": round(percentile(ordered, percent), 3) for percent in _PERCENTS}
    return {"count": len(ordered), "min": round(ordered[0], 3), **points, "max": round(ordered[-1], 3)}


def _rate(count: int, duration_s: float) -> float:
    return round(count / duration_s, 3) if duration_s > 0 else 0.0
