"""Operator counts against closed forms, and what bounds decoding and prefill."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.memory.geometry import ModelGeometry
from edge.memory.kv import KvType
from edge.packages.package import Package
from edge.scheduling.graph import Operator, decode, operators, prefill
from edge.scheduling.roofline import Bound, Peak, predict, tokens_per_s

GEOMETRY = ModelGeometry(
    architecture="llama",
    embedding_length=576,
    feed_forward_length=1536,
    heads=9,
    kv_heads_by_layer=(3,) * 30,
    key_length=64,
    value_length=64,
    vocabulary_tokens=49152,
    trained_context_tokens=8192,
)
WEIGHTS = {
    "embedding": 30081024,
    "qkv": 10368000,
    "attention_output": 6220800,
    "feed_forward": 49766400,
    "other": 140544,
}
MEASURED = Peak(flops_per_s=48e9, bytes_per_s=13.6e9)
"""One thread of the reference machine: prefill and decode of this model at short context."""


def by_name(work: tuple[Operator, ...]) -> dict[str, Operator]:
    return {operator.name: operator for operator in work}


def test_products_cost_two_flops_per_weight_and_token() -> None:
    block_weights = 576 * (576 + 2 * 192) + 576 * 576 + 3 * 576 * 1536
    found = by_name(operators(GEOMETRY, WEIGHTS, KvType.F16, prefill(100, 63)))
    products = sum(found[name].flops for name in ("qkv", "attention_output", "feed_forward"))
    assert products == 2 * 100 * 30 * block_weights
    assert found["head"].flops == 2 * 576 * 49152  # the last token alone passes the head


def test_decoding_reads_every_weight_once_and_the_cache_so_far() -> None:
    found = by_name(operators(GEOMETRY, WEIGHTS, KvType.F16, decode(1000)))
    assert found["attention"].bytes_moved == pytest.approx(23040 * 1002 + 4 * 2 * 30 * 9 * 64)
    read = sum(operator.bytes_moved for operator in found.values())
    stored = sum(WEIGHTS.values()) + 23040 * 1000
    assert stored < read < 1.05 * stored


def test_weights_are_read_once_per_micro_batch() -> None:
    few, many = (by_name(operators(GEOMETRY, WEIGHTS, KvType.F16, prefill(504, n))) for n in (504, 63))
    saved = many["feed_forward"].bytes_moved - few["feed_forward"].bytes_moved
    assert saved == 7 * WEIGHTS["feed_forward"]


def test_decode_is_bound_by_memory_and_prefill_by_arithmetic() -> None:
    one = predict(operators(GEOMETRY, WEIGHTS, KvType.F16, decode(50)), MEASURED)
    assert one.bound is Bound.MEMORY
    assert tokens_per_s(1, one) == pytest.approx(141, rel=0.05)
    prompt = predict(operators(GEOMETRY, WEIGHTS, KvType.F16, prefill(999, 512)), MEASURED)
    assert prompt.bound is Bound.COMPUTE
    assert tokens_per_s(999, prompt) == pytest.approx(228, rel=0.25)


@given(past=st.integers(0, 8000), kv_type=st.sampled_from(KvType))
def test_a_longer_past_is_never_cheaper(past: int, kv_type: KvType) -> None:
    now, later = (
        predict(operators(GEOMETRY, WEIGHTS, kv_type, decode(tokens)), MEASURED).seconds for tokens in (past, past + 64)
    )
    assert later > now


@given(prompt=st.integers(1, 4096), ubatch=st.integers(1, 512))
def test_flops_do_not_depend_on_how_a_prompt_is_cut(prompt: int, ubatch: int) -> None:
    whole = operators(GEOMETRY, WEIGHTS, KvType.F16, prefill(prompt, prompt))
    cut = operators(GEOMETRY, WEIGHTS, KvType.F16, prefill(prompt, ubatch))
    assert [a.flops for a in whole] == [b.flops for b in cut]
    assert all(b.bytes_moved >= a.bytes_moved - 1 for a, b in zip(whole, cut, strict=True) if a.name != "attention")


def test_the_packages_facts_feed_the_graph(installed_model: Package) -> None:
    facts = installed_model.manifest.model
    assert facts.geometry == GEOMETRY
    assert facts.weight_bytes == WEIGHTS
    assert Path(installed_model.model_path).stat().st_size >= sum(facts.weight_bytes.values())
