"""Places a chain of operators on units so that computing and handing over take the least time together. Exact.

A chain has the property that the best way to reach an operator on a unit extends a best way to reach its predecessor
on some unit (Bellman, 1957), so dynamic programming over (operator, unit) finds the optimum in operators x units².
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Handover = Callable[[int, int, int], float]
"""Seconds to hand what operator `i` leaves from unit `a` to unit `b`; `i` = -1 is the input of the chain."""

HOST = 0
"""The unit that has the input and wants the output."""


def place(seconds: Sequence[Sequence[float]], handover: Handover) -> tuple[int, ...]:
    """The unit of each operator. `seconds[i][u]` is its time there, infinite where it is refused.

    Input and output lie on unit 0. Of equal optima, the one with the lower unit at the last difference is taken.
    """
    if not seconds:
        return ()
    units = range(len(seconds[0]))
    best = [_moved(handover, -1, HOST, unit) + seconds[0][unit] for unit in units]
    came_from: list[list[int]] = []
    for index in range(1, len(seconds)):
        before = best
        came = [_nearest(before, handover, index - 1, unit) for unit in units]
        best = [
            before[came[unit]] + _moved(handover, index - 1, came[unit], unit) + seconds[index][unit] for unit in units
        ]
        came_from.append(came)
    last = len(seconds) - 1
    unit = min(units, key=lambda a: best[a] + _moved(handover, last, a, HOST))
    path = [unit]
    for came in reversed(came_from):
        unit = came[unit]
        path.append(unit)
    return tuple(reversed(path))


def total_s(placement: Sequence[int], seconds: Sequence[Sequence[float]], handover: Handover) -> float:
    """What `placement` takes: all operators and all handovers, input and output included."""
    if not placement:
        return 0.0
    return math.fsum(seconds[index][unit] for index, unit in enumerate(placement)) + handovers_s(placement, handover)


def handovers_s(placement: Sequence[int], handover: Handover) -> float:
    """The handovers of `placement` alone."""
    stations = (HOST, *placement, HOST)
    return math.fsum(
        _moved(handover, index - 1, stations[index], stations[index + 1]) for index in range(len(stations) - 1)
    )


def _nearest(before: Sequence[float], handover: Handover, index: int, target: int) -> int:
    """The unit from which `target` is reached first, once operator `index` is done."""
    return min(range(len(before)), key=lambda source: before[source] + _moved(handover, index, source, target))


def _moved(handover: Handover, index: int, source: int, target: int) -> float:
    return 0.0 if source == target else handover(index, source, target)
