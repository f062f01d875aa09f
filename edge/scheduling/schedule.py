"""Decides where each operator of a model runs on a device, what that costs, and when the whole graph must move.

The fallback tax is the share of the plan's time that would not be there if the units that the plan uses took every
operator. Over the budget the plan is given up, and the whole graph goes to the one unit on which it is fastest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from edge.devices.delegation import OperatorKind, Refusal, Shape
from edge.devices.unit import UnitProfile
from edge.memory.kv import kv_bytes
from edge.scheduling.estimate import Estimate, estimate
from edge.scheduling.graph import Model
from edge.scheduling.placement import HOST, handovers_s, place, total_s
from edge.scheduling.roofline import Bound
from edge.scheduling.workload import decode, prefill

TAX_BUDGET_RATIO = 0.15


class Reason(StrEnum):
    """Why the plan is as it is."""

    ONLY_UNIT = "only_unit"
    FASTEST = "fastest"
    FALLBACK_OVER_BUDGET = "fallback_over_budget"
    MEMORY = "unit_memory_too_small"


@dataclass(frozen=True, slots=True)
class Demand:
    """What the plan is for: a prompt of `context_tokens`, then `output_tokens` after it."""

    context_tokens: int = 1024
    output_tokens: int = 256
    batch_tokens: int = 128
    ubatch_tokens: int = 63
    tax_budget_ratio: float = TAX_BUDGET_RATIO


@dataclass(frozen=True, slots=True)
class Placed:
    """One operator: its unit by name, its time in the whole prompt and in one token, and what bounds it."""

    kind: OperatorKind
    layer: int | None
    unit: str
    prefill_s: float
    decode_s: float
    prefill_bound: Bound
    decode_bound: Bound


@dataclass(frozen=True, slots=True)
class PhaseForecast:
    """Prefill or decode under the plan; `handover_s` is part of `seconds`."""

    tokens_per_s: float
    seconds: float
    handover_s: float
    bound: Bound


@dataclass(frozen=True, slots=True)
class Refused:
    """Operators of one kind that a unit does not take."""

    unit: str
    kind: OperatorKind
    why: Refusal


@dataclass(frozen=True, slots=True)
class Schedule:
    """The plan. `given_up_tax_ratio` is the tax of the plan that was over budget, where there was one."""

    operators: tuple[Placed, ...]
    prefill: PhaseForecast
    decode: PhaseForecast
    tax_ratio: float
    tax_budget_ratio: float
    reason: Reason
    refused: tuple[Refused, ...] = ()
    given_up_tax_ratio: float | None = None
    given_up_units: tuple[str, ...] = ()

    @property
    def units(self) -> tuple[str, ...]:
        """Units in use, in the order of the graph."""
        return tuple(dict.fromkeys(placed.unit for placed in self.operators))


@dataclass(frozen=True, slots=True)
class _Problem:
    """Both phases together: seconds of one whole request, with and without what units refuse."""

    units: tuple[UnitProfile, ...]
    prefill: Estimate
    decode: Estimate
    output_tokens: int
    refusals: tuple[tuple[Refusal | None, ...], ...]
    held_bytes: tuple[float, ...]
    """What each operator keeps in the memory of its unit: weights, and for attention the cache."""

    @property
    def full(self) -> tuple[tuple[float, ...], ...]:
        """Seconds of each operator on each unit, as if all were taken."""
        return tuple(
            tuple(p + self.output_tokens * d for p, d in zip(first, then, strict=True))
            for first, then in zip(self.prefill.seconds, self.decode.seconds, strict=True)
        )

    @property
    def allowed(self) -> tuple[tuple[float, ...], ...]:
        """The same, infinite where refused, or where a unit takes no parts."""
        return tuple(
            tuple(
                math.inf if self.refusals[unit][at] or not self.units[unit].delegation.divisible else seconds
                for unit, seconds in enumerate(row)
            )
            for at, row in enumerate(self.full)
        )

    def handover(self, index: int, source: int, target: int) -> float:
        return self.prefill.handover(index, source, target) + self.output_tokens * self.decode.handover(
            index, source, target
        )

    def time_s(self, placement: Sequence[int]) -> float:
        return total_s(placement, self.full, self.handover)

    def whole(self) -> list[tuple[int, ...]]:
        """The placements on one unit that takes, and holds, everything."""
        every = range(len(self.held_bytes))
        alone = [(unit,) * len(every) for unit in range(len(self.units)) if not any(self.refusals[unit])]
        return [placement for placement in alone if self.fits(placement)]

    def fits(self, placement: Sequence[int]) -> bool:
        for unit, profile in enumerate(self.units):
            held = math.fsum(size for at, size in zip(placement, self.held_bytes, strict=True) if at == unit)
            if profile.memory is not None and held > profile.memory:
                return False
        return True

    def tax(self, placement: Sequence[int]) -> float:
        """See the module. Refusals of units that are not used cost nothing."""
        used = {HOST, *placement}
        if not any(any(self.refusals[unit]) for unit in used):
            return 0.0
        lifted = tuple(
            tuple(seconds if unit in used else math.inf for unit, seconds in enumerate(row)) for row in self.full
        )
        ideal = place(lifted, self.handover)
        if not self.fits(ideal):
            return 0.0
        return max(0.0, 1 - self.time_s(ideal) / self.time_s(placement))


def schedule(
    model: Model, units: Sequence[UnitProfile], demand: Demand, *, decode_units: Sequence[UnitProfile] | None = None
) -> Schedule:
    """The plan for `model` on `units`, the first of which is the processor and takes everything.

    `decode_units` are the same units as they are while decoding, where that differs: engines use fewer threads then.
    """
    problem = _problem(model, tuple(units), tuple(decode_units or units), demand)
    placement, reason = _fastest(model, problem)
    tax = problem.tax(placement)
    if tax <= demand.tax_budget_ratio:
        return _schedule(problem, placement, reason, tax, demand)
    moved = min(problem.whole(), key=problem.time_s, default=(HOST,) * len(placement))
    plan = _schedule(problem, moved, Reason.FALLBACK_OVER_BUDGET, 0.0, demand)
    return _given_up(plan, problem, placement, tax)


def _problem(
    model: Model, units: tuple[UnitProfile, ...], decode_units: tuple[UnitProfile, ...], demand: Demand
) -> _Problem:
    prompt = prefill(demand.context_tokens, batch_tokens=demand.batch_tokens, ubatch_tokens=demand.ubatch_tokens)
    first = estimate(model, prompt, units)
    then = estimate(model, decode(demand.context_tokens), decode_units)
    needs = [operator.need for operator in first.operators]
    shape = Shape(max(each.tokens for each in prompt.passes), demand.context_tokens + demand.output_tokens)
    cache = kv_bytes(model.geometry, shape.context_tokens, model.kv_type) / model.geometry.layers
    return _Problem(
        units=units,
        prefill=first,
        decode=then,
        output_tokens=demand.output_tokens,
        refusals=tuple(unit.delegation.refusals(needs, shape) for unit in units),
        held_bytes=tuple(
            operator.weight_bytes + (cache if operator.kind is OperatorKind.ATTENTION else 0.0)
            for operator in first.operators
        ),
    )


def _fastest(model: Model, problem: _Problem) -> tuple[tuple[int, ...], Reason]:
    """The exact optimum; where a unit's memory does not hold its part, the best run of last layers that it does hold.

    The limit on memory couples all operators, so the chain is no longer one; last layers are what engines offload.
    """
    if len(problem.units) == 1:
        return (HOST,) * len(problem.held_bytes), Reason.ONLY_UNIT
    free = [place(problem.allowed, problem.handover), *problem.whole()]
    best = min(free, key=problem.time_s)
    if problem.fits(best):
        return best, Reason.FASTEST
    runs = [
        _last_layers(problem, unit, first)
        for unit in range(1, len(problem.units))
        if problem.units[unit].delegation.divisible
        for first in range(model.geometry.layers + 1)
    ]
    fitting = [(HOST,) * len(problem.held_bytes), *problem.whole(), *filter(problem.fits, runs)]
    return min(fitting, key=problem.time_s), Reason.MEMORY


def _last_layers(problem: _Problem, unit: int, first_layer: int) -> tuple[int, ...]:
    """Everything from `first_layer` on that `unit` takes; the embedding stays with the processor."""
    return tuple(
        unit
        if operator.kind is not OperatorKind.EMBEDDING
        and (operator.layer is None or operator.layer >= first_layer)
        and not problem.refusals[unit][at]
        else HOST
        for at, operator in enumerate(problem.prefill.operators)
    )


def _schedule(problem: _Problem, placement: Sequence[int], reason: Reason, tax: float, demand: Demand) -> Schedule:
    placed = tuple(
        Placed(
            kind=operator.kind,
            layer=operator.layer,
            unit=problem.units[unit].name,
            prefill_s=problem.prefill.seconds[at][unit],
            decode_s=problem.decode.seconds[at][unit],
            prefill_bound=problem.prefill.bounds[at][unit],
            decode_bound=problem.decode.bounds[at][unit],
        )
        for at, (operator, unit) in enumerate(zip(problem.prefill.operators, placement, strict=True))
    )
    return Schedule(
        operators=placed,
        prefill=_forecast(problem.prefill, placement),
        decode=_forecast(problem.decode, placement),
        tax_ratio=tax,
        tax_budget_ratio=demand.tax_budget_ratio,
        reason=reason,
        refused=_refused(problem),
    )


def _refused(problem: _Problem) -> tuple[Refused, ...]:
    found = {
        Refused(unit.name, operator.kind, why)
        for unit, refusals in zip(problem.units, problem.refusals, strict=True)
        for operator, why in zip(problem.prefill.operators, refusals, strict=True)
        if why is not None
    }
    return tuple(sorted(found, key=lambda each: (each.unit, list(OperatorKind).index(each.kind))))


def _forecast(phase: Estimate, placement: Sequence[int]) -> PhaseForecast:
    times = [(phase.seconds[at][unit], phase.bounds[at][unit]) for at, unit in enumerate(placement)]
    handing_s = handovers_s(placement, phase.handover)
    seconds = math.fsum(time for time, _ in times) + handing_s
    memory_s = math.fsum(time for time, bound in times if bound is Bound.MEMORY)
    bound = Bound.MEMORY if 2 * memory_s >= seconds - handing_s else Bound.COMPUTE
    return PhaseForecast(phase.workload.tokens / seconds, seconds, handing_s, bound)


def _given_up(plan: Schedule, problem: _Problem, placement: Sequence[int], tax: float) -> Schedule:
    names = tuple(dict.fromkeys(problem.units[unit].name for unit in placement))
    return Schedule(
        operators=plan.operators,
        prefill=plan.prefill,
        decode=plan.decode,
        tax_ratio=plan.tax_ratio,
        tax_budget_ratio=plan.tax_budget_ratio,
        reason=plan.reason,
        refused=plan.refused,
        given_up_tax_ratio=tax,
        given_up_units=names,
    )
