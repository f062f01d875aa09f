"""Grammars compiled ahead of the engine: what is too much is refused, and no schema is compiled twice."""

from __future__ import annotations

from typing import Any

import pytest

from edge.service import grammar, grammar_check
from edge.service.grammar import Grammar
from edge.service.grammar_check import GrammarCheck
from shared.errors import InvalidRequest


def _of(schema: dict[str, Any]) -> Grammar:
    found = grammar.of_format({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})
    assert found is not None
    return found


def _product(factors: int) -> dict[str, Any]:
    """`8 ** factors` alternatives: at 4, hundreds of times the work of 1 on any machine."""
    parts = [
        {"anyOf": [{"type": "object", "properties": {f"a{n}_{m}": {"type": "integer"}}} for m in range(8)]}
        for n in range(factors)
    ]
    return {"allOf": parts}


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"type": "string"}},
        {"type": "string", "pattern": "^(?=a)b$"},
        {"type": "array", "uniqueItems": True},
        {"type": "string", "format": "made-up"},
        {"allOf": [{"type": "string", "format": "made-up"}, {"minLength": 1}]},
    ],
)
async def test_a_schema_that_cannot_be_enforced_is_said_to_be_so(schema: dict[str, Any]) -> None:
    """RV-05: unsupported is stated, never ignored, never 500."""
    with pytest.raises(InvalidRequest) as caught:
        await GrammarCheck(limit_s=5).check(_of(schema))
    assert (caught.value.param, caught.value.code) == ("response_format", "unsupported_schema")
    assert "made-up" not in caught.value.message


async def test_combinations_are_ended_at_the_limit() -> None:
    """Within every bound on size, these would take minutes, and the engine would take them for all its clients."""
    check = GrammarCheck(limit_s=0.05)
    await check.check(_of(_product(1)))
    with pytest.raises(InvalidRequest) as caught:
        await check.check(_of(_product(4)))
    assert caught.value.code == "schema_too_complex"


async def test_a_large_schema_is_measured_too() -> None:
    with pytest.raises(InvalidRequest) as caught:
        await GrammarCheck(limit_s=1e-6).check(_of({"enum": [f"value {n}" for n in range(500)]}))
    assert caught.value.code == "schema_too_complex"
    with pytest.raises(InvalidRequest):
        await GrammarCheck(limit_s=30).check(Grammar("x" * (1 << 20), "tools"))


async def test_verdicts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    check = GrammarCheck(limit_s=30)
    await check.check(_of({"type": "integer"}))
    with pytest.raises(InvalidRequest):
        await check.check(_of({"not": {}}))
    monkeypatch.setattr(grammar_check, "_compiled", None)
    await check.check(_of({"type": "integer"}))
    with pytest.raises(InvalidRequest):
        await check.check(_of({"not": {}}))
