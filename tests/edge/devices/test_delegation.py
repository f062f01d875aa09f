"""What units take of a graph, by the three kinds of delegation."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from edge.devices.delegation import (
    AnyDelegation,
    Compiled,
    Delegation,
    Need,
    OperatorKind,
    PerOperator,
    Refusal,
    Shape,
    WholeGraph,
)

GRAPH = (
    Need(OperatorKind.NORM, frozenset({"F32"})),
    Need(OperatorKind.QKV, frozenset({"Q4_K", "Q6_K"})),
    Need(OperatorKind.ATTENTION),
)
SHAPE = Shape(pass_tokens=63, context_tokens=2048)
WITHOUT_ATTENTION = frozenset(OperatorKind) - {OperatorKind.ATTENTION}


def test_each_operator_is_taken_or_refused_for_itself() -> None:
    unit: Delegation = PerOperator(operators=WITHOUT_ATTENTION, weight_types=frozenset({"F32", "Q4_K"}))
    assert unit.refusals(GRAPH, SHAPE) == (None, Refusal.WEIGHT_TYPE, Refusal.KIND)
    assert unit.divisible
    assert unit.computed_tokens(63) == 63


def test_a_whole_graph_is_all_or_nothing() -> None:
    unit: Delegation = WholeGraph(operators=WITHOUT_ATTENTION)
    assert unit.refusals(GRAPH, SHAPE) == (Refusal.WHOLE_GRAPH, Refusal.WHOLE_GRAPH, Refusal.KIND)
    assert unit.refusals(GRAPH[:2], SHAPE) == (None, None)
    assert not unit.divisible


def test_what_is_compiled_has_fixed_shapes() -> None:
    unit: Delegation = Compiled(pass_tokens=(1, 32, 128), context_tokens=2048, operators=WITHOUT_ATTENTION)
    assert unit.refusals(GRAPH, SHAPE) == (None, None, Refusal.KIND)
    assert unit.refusals(GRAPH, Shape(129, 2048)) == (Refusal.SHAPE,) * 3
    assert unit.refusals(GRAPH, Shape(1, 2049)) == (Refusal.CONTEXT,) * 3
    assert [unit.computed_tokens(tokens) for tokens in (1, 2, 32, 33, 128)] == [1, 32, 32, 128, 128]


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "sideways"},
        {"kind": "compiled"},
        {"kind": "compiled", "pass_tokens": [], "context_tokens": 8},
        {"kind": "compiled", "pass_tokens": [128, 1], "context_tokens": 8},
        {"kind": "compiled", "pass_tokens": [0], "context_tokens": 8},
        {"kind": "per_operator", "operators": []},
        {"kind": "per_operator", "operators": ["softmax"]},
        {"kind": "whole_graph", "pass_tokens": [1]},
    ],
)
def test_a_profile_cannot_describe_what_is_no_delegation(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(AnyDelegation).validate_python(wrong)
