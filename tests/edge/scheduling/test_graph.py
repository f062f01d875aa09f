"""Operator counts against closed forms, how prompts are cut, and what bounds decoding and prefill."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import fsum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.devices.delegation import OperatorKind
from edge.devices.unit import Efficiency
from edge.memory.kv import KvType
from edge.packages.package import Package
from edge.scheduling.calibration import workload_s
from edge.scheduling.graph import Model, Operator, operators
from edge.scheduling.roofline import Bound, cost
from edge.scheduling.workload import Pass, decode, prefill
from tests.edge.scheduling.models import GEOMETRY, MODEL, TENSORS, processor

QKV, ATTENTION, OUTPUT, MLP, HEAD = (
    OperatorKind.QKV,
    OperatorKind.ATTENTION,
    OperatorKind.ATTENTION_OUTPUT,
    OperatorKind.FEED_FORWARD,
    OperatorKind.HEAD,
)


def summed(work: Pass, kind: OperatorKind, field: str, model: Model = MODEL) -> float:
    return fsum(getattr(operator, field) for operator in operators(model, work) if operator.kind is kind)


def test_a_block_has_its_operators_in_order() -> None:
    chain = operators(MODEL, Pass(1, 10))
    assert [op.kind.value for op in chain[:8]] == [
        "embedding", "norm", "qkv", "rope", "attention", "attention_output", "norm", "feed_forward",
    ]  # fmt: skip
    assert [op.kind.value for op in chain[-2:]] == ["norm", "head"]
    assert Counter(op.layer for op in chain) == {None: 3, **dict.fromkeys(range(30), 7)}


def test_products_cost_two_flops_per_weight_and_token() -> None:
    block_weights = 576 * (576 + 2 * 192) + 576 * 576 + 3 * 576 * 1536
    products = fsum(summed(Pass(100, 0), kind, "flops") for kind in (QKV, OUTPUT, MLP))
    assert products == 2 * 100 * 30 * block_weights
    assert summed(Pass(100, 0), HEAD, "flops") == 2 * 576 * 49152  # one token alone passes the head
    assert summed(Pass(100, 0, outputs=0), HEAD, "flops") == 0


def test_decoding_reads_every_weight_once_and_the_cache_so_far() -> None:
    assert summed(Pass(1, 1000), ATTENTION, "bytes_moved") == pytest.approx(23040 * 1002 + 4 * 2 * 30 * 9 * 64)
    read = fsum(operator.bytes_moved for operator in operators(MODEL, Pass(1, 1000)))
    stored = fsum(size for types in TENSORS.values() for size in types.values()) + 23040 * 1000
    assert stored < read < 1.05 * stored


def test_a_windowed_layer_attends_to_its_window_alone() -> None:
    windowed = replace(MODEL, geometry=replace(GEOMETRY, window_tokens=512, windowed_by_layer=(True,) * 29 + (False,)))
    whole, cut = (summed(Pass(1, 4095), ATTENTION, "flops", model) for model in (MODEL, windowed))
    assert cut / whole == pytest.approx((29 * 512 + 4096) / (30 * 4096), rel=1e-3)


def test_types_of_weights_stand_at_their_operators() -> None:
    types = {op.kind: op.weight_types for op in operators(MODEL, Pass(1, 0))}
    assert types[MLP] == {"Q4_1"}
    assert types[HEAD] == types[OperatorKind.EMBEDDING] == {"Q8_0"}  # tied
    untied = replace(MODEL, tensor_bytes={**TENSORS, "head": {"Q6_K": 23000000}})
    chain = operators(untied, Pass(1, 0))
    assert chain[-1].weight_types == {"Q6_K"}
    assert (chain[0].weight_bytes, chain[-1].weight_bytes) == (30081024, 23000000)
    assert operators(MODEL, Pass(1, 0))[0].weight_bytes == 0  # held once


def test_a_prompt_is_cut_as_the_engine_cuts_it() -> None:
    cut = prefill(300, batch_tokens=128, ubatch_tokens=63)
    assert {(each.tokens, each.count) for each in cut.passes} == {(63, 4), (2, 2), (44, 1)}
    assert sum(each.tokens * each.count for each in cut.passes) == 300
    assert [each.past_tokens for each in cut.passes if each.tokens == 63] == [(0 + 63 + 128 + 191) / 4]
    assert sum(each.outputs * each.count for each in cut.passes) == pytest.approx(1)


@given(prompt=st.integers(1, 5000), batch=st.integers(32, 512), ubatch=st.integers(1, 512))
def test_flops_do_not_depend_on_how_a_prompt_is_cut(prompt: int, batch: int, ubatch: int) -> None:
    small = replace(MODEL, geometry=replace(GEOMETRY, kv_heads_by_layer=(3,)))

    def flops(cut_batch: int, cut_ubatch: int) -> float:
        work = prefill(prompt, batch_tokens=cut_batch, ubatch_tokens=cut_ubatch)
        return fsum(each.count * op.flops for each in work.passes for op in operators(small, each))

    assert flops(batch, ubatch) == pytest.approx(flops(prompt, prompt), rel=1e-9)


@given(past=st.integers(0, 8000), kv_type=st.sampled_from(KvType))
def test_a_longer_past_is_never_cheaper(past: int, kv_type: KvType) -> None:
    model = replace(MODEL, kv_type=kv_type)
    now, later = (workload_s(model, decode(tokens), processor()) for tokens in (past, past + 64))
    assert later > now


def test_decode_is_bound_by_memory_and_prefill_by_arithmetic() -> None:
    def bounds(work: Pass) -> set[Bound]:
        return {cost(op, processor(), work.tokens).bound for op in operators(MODEL, work) if op.kind in (QKV, MLP)}

    assert bounds(Pass(1, 50)) == {Bound.MEMORY}
    assert bounds(Pass(512, 0)) == {Bound.COMPUTE}


def test_each_class_of_operator_has_its_own_roof() -> None:
    unit = processor(flops_per_s=100.0, bytes_per_s=100.0)
    share = Efficiency(product_flops=2.0, product_bytes=0.5, attention_decode_flops=0.1, attention_prefill_flops=0.2)
    calibrated = unit.model_copy(update={"efficiency": share})

    def seconds(kind: OperatorKind, flops: float, moved: float, tokens: int) -> float:
        return cost(Operator(kind, 0, flops, moved, 0.0, 0.0), calibrated, tokens).seconds

    assert seconds(MLP, 100, 0, 8) == pytest.approx(0.5)
    assert seconds(MLP, 0, 100, 1) == pytest.approx(2.0)
    assert seconds(ATTENTION, 100, 0, 1) == pytest.approx(10.0)
    assert seconds(ATTENTION, 100, 0, 2) == pytest.approx(5.0)
    assert seconds(OperatorKind.NORM, 100, 0, 1) == pytest.approx(1.0)


def test_the_packages_facts_feed_the_graph(installed_model: Package) -> None:
    facts = installed_model.manifest.model
    assert facts.geometry == GEOMETRY
    assert {role: sum(types.values()) for role, types in facts.tensor_bytes.items()} == {
        role: sum(types.values()) for role, types in TENSORS.items()
    }
    assert Model(facts.geometry, facts.tensor_bytes).product_bytes == 30081024 + 10368000 + 6220800 + 49766400
