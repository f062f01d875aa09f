"""Predicts how long an operator takes on a unit: it is bound by arithmetic or by memory, whichever is slower.

Source: Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model", CACM 52(4), 2009. Each
class of operator has a roof of its own below the unit's peaks, as far as calibration has measured it: an engine's
attention over a long cache reaches a small part of what its matrix products do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from edge.devices.delegation import OperatorKind
from edge.devices.unit import Efficiency, UnitProfile
from edge.scheduling.graph import Operator

_NOT_MEASURED = Efficiency()
PRODUCTS = frozenset(
    {OperatorKind.QKV, OperatorKind.ATTENTION_OUTPUT, OperatorKind.FEED_FORWARD, OperatorKind.HEAD}
)  # fmt: skip


class Bound(StrEnum):
    """What limits an operator."""

    COMPUTE = "compute"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Cost:
    """Predicted time of one operator on one unit, and what bounds it."""

    seconds: float
    bound: Bound


def cost(operator: Operator, unit: UnitProfile, pass_tokens: int) -> Cost:
    """max(FLOPs / attainable FLOP/s, bytes / attainable bandwidth) of one pass of `pass_tokens`."""
    flops_per_s, bytes_per_s = _roofs(operator.kind, unit, pass_tokens)
    compute_s, memory_s = operator.flops / flops_per_s, operator.bytes_moved / bytes_per_s
    return Cost(max(compute_s, memory_s), Bound.COMPUTE if compute_s > memory_s else Bound.MEMORY)


def _roofs(kind: OperatorKind, unit: UnitProfile, pass_tokens: int) -> tuple[float, float]:
    share = unit.efficiency or _NOT_MEASURED
    if kind in PRODUCTS:
        return unit.flops_per_s * share.product_flops, unit.bytes_per_s * share.product_bytes
    if kind is OperatorKind.ATTENTION:
        one = share.attention_decode_flops if pass_tokens == 1 else share.attention_prefill_flops
        return unit.flops_per_s * one, unit.bytes_per_s
    return unit.flops_per_s, unit.bytes_per_s
