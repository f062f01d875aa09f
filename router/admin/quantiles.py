"""Quantiles of many figures in little memory: counts in buckets whose bounds grow by a constant factor.

A value is known to within half a bucket, 2.5 percent of itself (the idea of HdrHistogram and DDSketch), and windows add
up exactly, which lists of quantiles do not.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

_GROWTH = math.log(1.05)


class Sketch:
    """Counts of positive figures."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, value: float) -> None:
        """Count one figure; what is not positive counts as very small."""
        self._counts[math.floor(math.log(max(value, 1e-3)) / _GROWTH)] += 1

    def plain(self) -> list[tuple[int, int]]:
        """Buckets and counts, as JSON values."""
        return list(self._counts.items())

    def include(self, plain: Iterable[tuple[int, int]]) -> None:
        """Add what `plain` gave of another."""
        for bucket, count in plain:
            self._counts[bucket] += count

    @classmethod
    def together(cls, sketches: Iterable[Sketch]) -> Sketch:
        """All figures of `sketches`."""
        whole = cls()
        for each in sketches:
            whole._counts.update(each._counts)
        return whole

    def quantile(self, share: float) -> float | None:
        """The figure below which `share` (0 to 1) of all lie (nearest rank); None without any."""
        wanted = max(1, math.ceil(share * self._counts.total()))
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return round(math.exp((bucket + 0.5) * _GROWTH), 3)
        return None
