"""Predicts how long operators take on a unit: each is bound by arithmetic or by memory, whichever is slower.

Source: Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model", CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from edge.scheduling.graph import Operator


class Bound(StrEnum):
    """What limits an operator."""

    COMPUTE = "compute"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Peak:
    """What a unit reaches at best, measured or from its profile."""

    flops_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """Predicted time of one operator and what bounds it."""

    operator: Operator
    seconds: float
    bound: Bound


@dataclass(frozen=True, slots=True)
class Prediction:
    """Times of all operators of one pass."""

    times: tuple[OperatorTime, ...]

    @property
    def seconds(self) -> float:
        """Time of the pass: operators of one unit run one after another."""
        return sum(time.seconds for time in self.times)

    @property
    def bound(self) -> Bound:
        """What bounds the greater part of the time."""
        memory = sum(time.seconds for time in self.times if time.bound is Bound.MEMORY)
        return Bound.MEMORY if 2 * memory >= self.seconds else Bound.COMPUTE


def predict(operators: Iterable[Operator], peak: Peak) -> Prediction:
    """Time of each operator: max(FLOPs / peak FLOP/s, bytes / bandwidth)."""
    return Prediction(tuple(_time(operator, peak) for operator in operators))


def tokens_per_s(tokens: int, prediction: Prediction) -> float:
    """Rate of a pass that computes `tokens`."""
    return tokens / prediction.seconds


def _time(operator: Operator, peak: Peak) -> OperatorTime:
    compute_s, memory_s = operator.flops / peak.flops_per_s, operator.bytes_moved / peak.bytes_per_s
    bound = Bound.COMPUTE if compute_s > memory_s else Bound.MEMORY
    return OperatorTime(operator, max(compute_s, memory_s), bound)
