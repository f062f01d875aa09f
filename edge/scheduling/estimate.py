"""Times a workload on every unit of a device, operator by operator, before anything is placed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from edge.devices.unit import UnitProfile
from edge.scheduling.graph import Model, Operator, operators
from edge.scheduling.placement import HOST
from edge.scheduling.roofline import Bound, cost
from edge.scheduling.workload import Pass, Workload


@dataclass(frozen=True, slots=True)
class Estimate:
    """One workload: `seconds[i][u]` and `bounds[i][u]` of operator `i` on unit `u`, and what handing over takes.

    `handed_s[i + 1][u]` is the time to carry what operator `i` leaves between unit `u` and the processor; the first
    row is for the input.
    """

    workload: Workload
    operators: tuple[Operator, ...]
    seconds: tuple[tuple[float, ...], ...]
    bounds: tuple[tuple[Bound, ...], ...]
    handed_s: tuple[tuple[float, ...], ...]

    def handover(self, index: int, source: int, target: int) -> float:
        """Seconds from unit to unit. Two units that are not the processor hand over through its memory."""
        return self.handed_s[index + 1][source] + self.handed_s[index + 1][target]


def estimate(model: Model, work: Workload, units: Sequence[UnitProfile]) -> Estimate:
    """The time of every operator on every unit, whether or not the unit takes it."""
    passes = [(each, [_graph(model, each, unit) for unit in units]) for each in work.passes]
    plain = operators(model, work.passes[0])
    costs = [
        [
            [(each.count, cost(graphs[index][at], unit, computed_tokens(each, unit))) for each, graphs in passes]
            for index, unit in enumerate(units)
        ]
        for at in range(len(plain))
    ]
    seconds = tuple(tuple(math.fsum(n * c.seconds for n, c in on) for on in row) for row in costs)
    bounds = tuple(tuple(max(on, key=lambda pair: pair[0] * pair[1].seconds)[1].bound for on in row) for row in costs)
    states = [[operator.state_bytes for operator in operators(model, each)] for each in work.passes]
    counts = [each.count for each in work.passes]
    handed = [
        tuple(
            0.0
            if index == HOST
            else math.fsum(
                n * _handed_s(unit, row[at] if at >= 0 else 0.0) for n, row in zip(counts, states, strict=True)
            )
            for index, unit in enumerate(units)
        )
        for at in range(-1, len(plain))
    ]
    return Estimate(work, plain, seconds, bounds, tuple(handed))


def computed_tokens(work: Pass, unit: UnitProfile) -> int:
    """Tokens of a pass on `unit`, padding included."""
    return unit.delegation.computed_tokens(work.tokens)


def _graph(model: Model, work: Pass, unit: UnitProfile) -> tuple[Operator, ...]:
    return operators(model, replace(work, tokens=computed_tokens(work, unit)))


def _handed_s(unit: UnitProfile, size_bytes: float) -> float:
    return unit.handover_s + (size_bytes / unit.link_bytes_per_s if unit.link_bytes_per_s else 0.0)
