"""A first-order thermal model of the device, fitted while it runs, that predicts when the next level is reached.

    dT/dt = (T_rest + gain * load - T) / tau        fitted as  dT/dt = w . (T - T_ref, load, 1)

with recursive least squares and exponential forgetting (Ljung, System Identification, 2nd edition, section 11.2). The
derivative is taken over a window of its own, so that the steps of a sensor that counts in whole degrees average out.
Nothing is predicted from a model that is not one of a warm body: the time constant has to be in range, and the fit has
to explain what it was shown. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

Vector = tuple[float, float, float]
Matrix = tuple[Vector, Vector, Vector]

_REFERENCE_C = 50.0
_DEGREES_PER_UNIT = 10.0
"""Temperatures enter in tens of degrees, so that all three regressors are of the same size."""
_FORGETTING = 0.98
_FIRST_VARIANCE = 100.0
_MOST_VARIANCE = 1_000.0
_LEAST_SAMPLES = 8
_LEAST_SPREAD_C = 1.0
_LEAST_TAU_S = 0.5
_MOST_RUNAWAY_PER_S = 0.05
"""A slope that grows faster than this with temperature is no device but a fault of the sensor."""
_ERROR_ALPHA = 0.1
_DRIFT_ALPHA = 0.2
_MOST_ERROR_C_PER_S = 0.75
HORIZON_S = 600.0
"""Beyond this a prediction says no more than that it is far away."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The model as fitted so far, and the point from which the next derivative is taken."""

    weights: Vector = (0.0, 0.0, 0.0)
    covariance: Matrix = ((_FIRST_VARIANCE, 0.0, 0.0), (0.0, _FIRST_VARIANCE, 0.0), (0.0, 0.0, _FIRST_VARIANCE))
    samples: int = 0
    error: float = 0.0
    drift: float = 0.0
    """What the surroundings add to the slope beside the model: a smoothed error with its sign."""
    lowest_c: float = math.inf
    highest_c: float = -math.inf
    from_c: float | None = None
    from_ms: int = 0
    load_ms: float = 0.0
    load_ratio: float = 0.0
    seen_ms: int = 0

    def after(self, celsius: float | None, load_ratio: float, now_ms: int, *, period_ms: int) -> Forecast:
        """The model after one more reading; None breaks the series, it does not spoil the model."""
        if celsius is None:
            return replace(self, from_c=None)
        if self.from_c is None:
            return replace(self, from_c=celsius, from_ms=now_ms, load_ms=0.0, seen_ms=now_ms, load_ratio=load_ratio)
        # What ran since the last reading is what was seen running then.
        load_ms = self.load_ms + self.load_ratio * (now_ms - self.seen_ms)
        elapsed_ms = now_ms - self.from_ms
        if elapsed_ms < period_ms:
            return replace(self, load_ms=load_ms, seen_ms=now_ms, load_ratio=load_ratio)
        slope = (celsius - self.from_c) / (elapsed_ms / 1000)
        middle_c = (celsius + self.from_c) / 2
        fitted = self._fitted(_regressors(middle_c, load_ms / elapsed_ms), slope)
        return replace(
            fitted,
            lowest_c=min(self.lowest_c, celsius),
            highest_c=max(self.highest_c, celsius),
            from_c=celsius,
            from_ms=now_ms,
            load_ms=0.0,
            seen_ms=now_ms,
            load_ratio=load_ratio,
        )

    @property
    def tau_s(self) -> float | None:
        """The time constant; None while the model is not to be trusted, or shows no pull back towards a rest."""
        rate = self._rate
        return -1 / rate if rate is not None and rate < 0 else None

    def rest_c(self, load_ratio: float) -> float | None:
        """Where the temperature ends if the load stays as it is; None while that is not known."""
        tau_s = self.tau_s
        return None if tau_s is None else _REFERENCE_C + self._slope(_REFERENCE_C, load_ratio) * tau_s

    def seconds_to(self, target_c: float, celsius: float | None, load_ratio: float) -> float | None:
        """Seconds until `target_c` is reached under this load; None when that is not known or not in sight.

        With the slope a straight line over temperature, of which the ends are known, the time is the integral of its
        inverse: also where the surroundings heat up so steadily that the line is flat.
        """
        rate = self._rate
        if celsius is None:
            return None
        if celsius >= target_c:
            return 0.0
        if rate is None:
            return None
        here, there = self._slope(celsius, load_ratio), self._slope(target_c, load_ratio)
        if here <= 0 or there <= 0:
            return None
        flat = math.isclose(here, there, rel_tol=1e-6)
        seconds = (target_c - celsius) / here if flat else math.log(there / here) / rate
        return seconds if seconds <= HORIZON_S else None

    @property
    def _rate(self) -> float | None:
        """How the slope changes with temperature (1/s); None while the model is not to be trusted."""
        if self.samples < _LEAST_SAMPLES or self.highest_c - self.lowest_c < _LEAST_SPREAD_C:
            return None
        rate = self.weights[0] / _DEGREES_PER_UNIT
        return rate if -1 / _LEAST_TAU_S <= rate <= _MOST_RUNAWAY_PER_S and self.error <= _MOST_ERROR_C_PER_S else None

    def _slope(self, celsius: float, load_ratio: float) -> float:
        """Degrees per second at this temperature and load."""
        return _dot(self.weights, _regressors(celsius, load_ratio)) + self.drift

    def _fitted(self, x: Vector, slope: float) -> Forecast:
        """One step of recursive least squares."""
        px = _times(self.covariance, x)
        gain_scale = _FORGETTING + _dot(x, px)
        error = slope - _dot(self.weights, x)
        forgetting = _FORGETTING if max(self.covariance[i][i] for i in range(3)) < _MOST_VARIANCE else 1.0
        # The first errors are those of a model that knows nothing yet.
        judged = self.samples >= _LEAST_SAMPLES // 2
        return replace(
            self,
            weights=_vector(w + p / gain_scale * error for w, p in zip(self.weights, px, strict=True)),
            covariance=_reduced(self.covariance, px, gain_scale, forgetting),
            samples=self.samples + 1,
            drift=self.drift + _DRIFT_ALPHA * (error - self.drift) if judged else self.drift,
            error=self.error + _ERROR_ALPHA * (abs(error) - self.error) if judged else self.error,
        )


def _regressors(celsius: float, load_ratio: float) -> Vector:
    return (celsius - _REFERENCE_C) / _DEGREES_PER_UNIT, load_ratio, 1.0


def _times(matrix: Matrix, vector: Vector) -> Vector:
    return _dot(matrix[0], vector), _dot(matrix[1], vector), _dot(matrix[2], vector)


def _dot(a: Vector, b: Vector) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _vector(values: Iterable[float]) -> Vector:
    first, second, third = values
    return first, second, third


def _reduced(matrix: Matrix, px: Vector, gain_scale: float, forgetting: float) -> Matrix:
    """The covariance after a sample whose regressors it maps to `px`."""
    rows = [
        _vector((cell - px[i] * px[j] / gain_scale) / forgetting for j, cell in enumerate(row))
        for i, row in enumerate(matrix)
    ]
    return rows[0], rows[1], rows[2]
