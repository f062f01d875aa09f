"""Running figures over time: an exponentially weighted mean whose weight is stated as a half-life."""

from __future__ import annotations

from typing import NamedTuple


class Ewma(NamedTuple):
    """Exponentially weighted moving average: value after each sample, with the sample's weight `alpha`."""

    value: float | None = None

    def updated(self, sample: float, *, alpha: float) -> Ewma:
        """The average after `sample`; the first sample is taken whole."""
        return Ewma(sample if self.value is None else self.value + alpha * (sample - self.value))
