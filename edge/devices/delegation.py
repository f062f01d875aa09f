"""The three ways in which a runtime hands operators to a unit, behind one question: what of this graph does it take?

- Whole graph: all operators or none. One that the unit lacks moves the whole model away.
- Per operator: each is taken or refused for itself; what is refused falls back to the processor.
- Compiled ahead of time: shapes are fixed when the graph is compiled; a pass is padded to the next compiled length, and
  no longer one runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class OperatorKind(StrEnum):
    """The operators of a decoder, in the words that graphs and units share."""

    EMBEDDING = "embedding"
    NORM = "norm"
    QKV = "qkv"
    ROPE = "rope"
    ATTENTION = "attention"
    ATTENTION_OUTPUT = "attention_output"
    FEED_FORWARD = "feed_forward"
    HEAD = "head"


class DelegationKind(StrEnum):
    """The three ways by name."""

    WHOLE_GRAPH = "whole_graph"
    PER_OPERATOR = "per_operator"
    COMPILED = "compiled"


@dataclass(frozen=True, slots=True)
class Need:
    """What one operator asks of a unit: that it knows the kind, and the types that its weights are stored in."""

    kind: OperatorKind
    weight_types: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Shape:
    """The largest pass: tokens that are computed together, and the context that they attend to."""

    pass_tokens: int
    context_tokens: int


class Refusal(StrEnum):
    """Why a unit does not take an operator."""

    KIND = "operator_not_supported"
    WEIGHT_TYPE = "weight_type_not_supported"
    WHOLE_GRAPH = "graph_not_supported_whole"
    SHAPE = "shape_not_compiled"
    CONTEXT = "context_longer_than_compiled"


class Delegation(Protocol):
    """What every kind of delegation answers."""

    @property
    def divisible(self) -> bool:
        """Whether some operators may run here and others elsewhere."""

    def refusals(self, graph: Sequence[Need], shape: Shape) -> tuple[Refusal | None, ...]:
        """For each operator of `graph`, why it is refused; None where it is taken."""

    def computed_tokens(self, pass_tokens: int) -> int:
        """Tokens that a pass of `pass_tokens` costs here."""


class _Support(BaseModel):
    """Operator kinds and weight types that a unit knows; `weight_types` empty: every type."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operators: frozenset[OperatorKind] = Field(
        default=frozenset(OperatorKind), min_length=1, description="Operators that the unit knows."
    )
    weight_types: frozenset[str] = Field(
        default=frozenset(), description="Types of weights that it computes with, such as Q4_0; none named: all."
    )

    def _own_refusal(self, need: Need) -> Refusal | None:
        if need.kind not in self.operators:
            return Refusal.KIND
        if self.weight_types and not need.weight_types <= self.weight_types:
            return Refusal.WEIGHT_TYPE
        return None

    def computed_tokens(self, pass_tokens: int) -> int:
        """Every length runs as it is."""
        return pass_tokens


class PerOperator(_Support):
    """Each operator is taken or refused for itself, as by llama.cpp's backends and ONNX execution providers."""

    kind: Literal[DelegationKind.PER_OPERATOR] = DelegationKind.PER_OPERATOR

    @property
    def divisible(self) -> bool:
        """Refused operators fall back."""
        return True

    def refusals(self, graph: Sequence[Need], shape: Shape) -> tuple[Refusal | None, ...]:
        """Each operator's own answer; shapes are free."""
        del shape
        return tuple(self._own_refusal(need) for need in graph)


class WholeGraph(_Support):
    """All or nothing, as by TensorRT engines and by runtimes that own the whole model."""

    kind: Literal[DelegationKind.WHOLE_GRAPH] = DelegationKind.WHOLE_GRAPH

    @property
    def divisible(self) -> bool:
        """There are no parts."""
        return False

    def refusals(self, graph: Sequence[Need], shape: Shape) -> tuple[Refusal | None, ...]:
        """None anywhere, or a refusal everywhere: its own where it has one, else that of the graph."""
        del shape
        own = tuple(self._own_refusal(need) for need in graph)
        return tuple(each or Refusal.WHOLE_GRAPH for each in own) if any(own) else own


class Compiled(_Support):
    """Compiled ahead of time for fixed shapes, as ExecuTorch and QNN graphs for an NPU are."""

    kind: Literal[DelegationKind.COMPILED] = DelegationKind.COMPILED
    pass_tokens: tuple[Annotated[int, Field(ge=1, le=1 << 16)], ...] = Field(
        min_length=1, max_length=16, description="Lengths of a pass that were compiled, rising, such as [1, 128]."
    )
    context_tokens: int = Field(ge=1, le=1 << 24, description="Context that was compiled.")

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if list(self.pass_tokens) != sorted(set(self.pass_tokens)):
            raise ValueError("pass_tokens must rise")
        return self

    @property
    def divisible(self) -> bool:
        """A compiled part may stand between others."""
        return True

    def refusals(self, graph: Sequence[Need], shape: Shape) -> tuple[Refusal | None, ...]:
        """A shape beyond the compiled ones refuses everything; else each operator's own answer."""
        if shape.context_tokens > self.context_tokens:
            return (Refusal.CONTEXT,) * len(graph)
        if shape.pass_tokens > self.pass_tokens[-1]:
            return (Refusal.SHAPE,) * len(graph)
        return tuple(self._own_refusal(need) for need in graph)

    def computed_tokens(self, pass_tokens: int) -> int:
        """The next compiled length: what is missing is padding, and costs the same."""
        return next((length for length in self.pass_tokens if length >= pass_tokens), self.pass_tokens[-1])


AnyDelegation = Annotated[PerOperator | WholeGraph | Compiled, Field(discriminator="kind")]
