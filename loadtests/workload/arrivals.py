"""When requests are sent: the level of a shape over the run, and the seeded moments of an open loop.

An open loop sends by schedule, whatever the answers do, and times count from the schedule: what waits behind a slow
answer is measured, not left out (coordinated omission). A closed loop sends when a user's last answer came.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum


class Shape(StrEnum):
    """How the load goes over the run."""

    CONSTANT = "constant"
    RAMP = "ramp"
    """From a tenth to all of it, evenly."""
    STEP = "step"
    """Four steps of equal length: a quarter, half, three quarters, all."""
    SPIKE = "spike"
    """A quarter; all of it during the fifth tenth of the run."""
    SOAK = "soak"
    """Up during the first tenth, then all of it."""
    DIURNAL = "diurnal"
    """One day: a tenth at both ends (night), all of it in the middle."""


_LEVELS: Mapping[Shape, Callable[[float], float]] = {
    Shape.CONSTANT: lambda _: 1.0,
    Shape.RAMP: lambda part: 0.1 + 0.9 * part,
    Shape.STEP: lambda part: 0.25 * (1 + min(3, int(part * 4))),
    Shape.SPIKE: lambda part: 1.0 if 0.4 <= part < 0.5 else 0.25,
    Shape.SOAK: lambda part: min(1.0, 0.1 + 9 * part),
    Shape.DIURNAL: lambda part: 0.55 - 0.45 * math.cos(2 * math.pi * part),
}


def level(shape: Shape, part: float) -> float:
    """The share of the full load at `part` of the run (0 to 1), above 0 and at most 1."""
    return _LEVELS[shape](min(1.0, max(0.0, part)))


def due_times(shape: Shape, *, rate_per_s: float, duration_s: float, seed: int) -> Iterator[float]:
    """Seconds from the start at which requests are due: a Poisson process whose rate follows the shape (thinning,
    Lewis and Shedler 1979). The same seed gives the same moments, however many workers share them."""
    dice = random.Random(f"{seed}:arrivals")  # noqa: S311 - a seeded schedule, no secret
    at_s = 0.0
    while True:
        at_s += dice.expovariate(rate_per_s)
        if at_s >= duration_s:
            return
        if dice.random() < level(shape, at_s / duration_s):
            yield at_s
