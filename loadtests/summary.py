"""Sums up raw samples: percentiles of good answers alone, each failure once, and what was cut off by the end."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loadtests.samples import MEASURES

_PERCENTS = (50, 90, 95, 99)
Row = Mapping[str, Any]


def summary_of(rows: Sequence[Row], duration_s: float, *, begun: int | None = None) -> dict[str, Any]:
    """The figures of a run of `duration_s` seconds in which `begun` requests were sent; rates count good answers alone.

    Percentiles are nearest rank over the samples themselves: nothing was rounded into buckets or averaged before.
    """
    good = [row for row in rows if "failure" not in row]
    failures = Counter(str(row["failure"]) for row in rows if "failure" in row)
    tokens = sum(row.get("output_tokens", 0) for row in good)
    sent = len(rows) if begun is None else begun
    return {
        "duration_s": round(duration_s, 3),
        "requests": len(rows),
        "unfinished": max(0, sent - len(rows)),
        "succeeded": len(good),
        "failed": len(rows) - len(good),
        "failed_ratio": ratio(len(rows) - len(good), len(rows)),
        "failures": dict(sorted(failures.items())),
        "tiers": dict(sorted(Counter(str(row.get("tier", "unnamed")) for row in good).items())),
        "edge_ratio": ratio(sum(row.get("tier") == "edge" for row in good), len(good)),
        "requests_per_s": _rate(len(good), duration_s),
        "output_tokens_per_s": _rate(tokens, duration_s),
        "stalls": sum(row.get("stalls", 0) for row in good),
        "told_to_wait": sum("told_to_wait" in row for row in rows),
        "told_to_wait_ratio": ratio(sum("told_to_wait" in row for row in rows), len(rows)),
        "canaries": sum(bool(row.get("canary")) for row in rows),
        "leaked_bytes_by_answers": sum(row.get("leaked_bytes", 0) for row in rows),
        "privacy_violations": failures["privacy_violation"],
        "wrong_tier": failures["wrong_tier"],
        **{measure: spread(row[measure] for row in good if measure in row) for measure in MEASURES},
        "late_ms": spread(row["late_ms"] for row in rows if "late_ms" in row),
    }


def by_kind(rows: Sequence[Row], duration_s: float) -> dict[str, dict[str, Any]]:
    """The same figures for each kind of request."""
    kinds = sorted({str(row.get("kind", "chat")) for row in rows})
    return {kind: summary_of([row for row in rows if row.get("kind", "chat") == kind], duration_s) for kind in kinds}


def corrected_totals(rows: Sequence[Row]) -> dict[str, float | int]:
    """Spread of whole answers as a closed loop would have seen them had its users not waited.

    A user that asks every I milliseconds, held up for T > I, would have sent more requests meanwhile, which would have
    waited T - I, T - 2I and so on (Tene's correction of coordinated omission). I is the median of what was seen.
    """
    totals = sorted(row["total_ms"] for row in rows if "failure" not in row)
    if not totals:
        return {"count": 0}
    interval = max(1.0, percentile(totals, 50))
    missed = [
        total - step * interval
        for total in totals
        if total > 2 * interval
        for step in range(1, min(10_000, int(total // interval)))
    ]
    return spread([*totals, *missed])


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` % of the values do not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def spread(values: Iterable[float]) -> dict[str, float | int]:
    """Count, least, percentiles and most of some values; the count alone where there are none."""
    ordered = sorted(values)
    if not ordered:
        return {"count": 0}
    points = {f"p{percent}": round(percentile(ordered, percent), 3) for percent in _PERCENTS}
    return {"count": len(ordered), "min": round(ordered[0], 3), **points, "max": round(ordered[-1], 3)}


def ratio(part: int, whole: int) -> float | None:
    """The share, or None of nothing."""
    return round(part / whole, 6) if whole else None


def _rate(count: int, duration_s: float) -> float:
    return round(count / duration_s, 3) if duration_s > 0 else 0.0
