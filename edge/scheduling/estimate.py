"""Times a workload on every unit of a device, operator by operator, before anything is placed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from edge.devices.unit import UnitProfile
from edge.scheduling.graph import Model, Operator, operators
from edge.scheduling.placement import HOST
from edge.scheduling.roofline import Bound, Cost, cost
from edge.scheduling.workload import Workload


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
    columns = [_costs(model, work, unit) for unit in units]
    handed = [
        (0.0,) * (len(columns[HOST]) + 1) if index == HOST else _handed_s(model, work, unit)
        for index, unit in enumerate(units)
    ]
    return Estimate(
        workload=work,
        operators=operators(model, work.passes[0]),
        seconds=tuple(tuple(each.seconds for each in row) for row in zip(*columns, strict=True)),
        bounds=tuple(tuple(each.bound for each in row) for row in zip(*columns, strict=True)),
        handed_s=tuple(zip(*handed, strict=True)),
    )


def _costs(model: Model, work: Workload, unit: UnitProfile) -> tuple[Cost, ...]:
    """Of each operator over all passes, padded to what the unit computes; bound as in the passes that take longest."""
    by_pass = []
    for each in work.passes:
        tokens = unit.delegation.computed_tokens(each.tokens)
        chain = operators(model, replace(each, tokens=tokens))
        once = [cost(operator, unit, tokens) for operator in chain]
        by_pass.append([Cost(each.count * spent.seconds, spent.bound) for spent in once])
    return tuple(
        Cost(math.fsum(part.seconds for part in parts), max(parts, key=lambda part: part.seconds).bound)
        for parts in zip(*by_pass, strict=True)
    )


def _handed_s(model: Model, work: Workload, unit: UnitProfile) -> tuple[float, ...]:
    """Over all passes: what the unit's link takes for the input, which is small, and for what each operator leaves."""
    count = sum(each.count for each in work.passes)
    chains = [(each.count, operators(model, each)) for each in work.passes]
    carried = [math.fsum(n * chain[at].state_bytes for n, chain in chains) for at in range(len(chains[0][1]))]
    return tuple(
        count * unit.handover_s + (size_bytes / unit.link_bytes_per_s if unit.link_bytes_per_s else 0.0)
        for size_bytes in (0.0, *carried)
    )
