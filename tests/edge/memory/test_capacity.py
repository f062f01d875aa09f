"""KV arithmetic to the byte, and the context that a budget allows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.memory.capacity import MIB, Budget, Demand, Draft, adapter_bytes, overhead_bytes, plan_capacity, plan_of
from edge.memory.geometry import ModelGeometry, geometry_of
from edge.memory.kv import KvType, aligned_tokens, kv_bytes, kv_bytes_per_token, nominal_tokens, row_fits
from shared.errors import InsufficientMemory, ModelCorrupt, SettingsError


def metadata(**keys: object) -> dict[str, object]:
    """Model (a) of KV-01, with `keys` over it; `__` stands for a dot."""
    base: dict[str, object] = {
        "block_count": 32,
        "context_length": 131072,
        "embedding_length": 4096,
        "feed_forward_length": 14336,
        "attention.head_count": 32,
        "attention.head_count_kv": 8,
        "vocab_size": 128256,
    }
    base.update({name.replace("__", "."): value for name, value in keys.items()})
    found = {f"llama.{name}": value for name, value in base.items() if value is not None}
    return {"general.architecture": "llama", **found}


MODEL_A = geometry_of(metadata())
MODEL_B = geometry_of(
    metadata(
        block_count=28,
        attention__head_count=16,
        embedding_length=1024,
        attention__key_length=128,
        attention__value_length=128,
    )
)
DEMAND = Demand(slots=1, kv_type=KvType.F16, ubatch_tokens=63, minimum_context_tokens=2048)


def test_kv_01_grouped_heads() -> None:
    assert kv_bytes(MODEL_A, 8192, KvType.F16) == 1073741824


def test_kv_01_explicit_key_length() -> None:
    assert kv_bytes(MODEL_B, 40960, KvType.F16) == 4697620480


def test_kv_of_the_default_model_is_what_was_measured() -> None:
    model = geometry_of(
        metadata(block_count=30, embedding_length=576, attention__head_count=9, attention__head_count_kv=3)
    )
    assert kv_bytes_per_token(model, KvType.F16) == 23040
    assert kv_bytes(model, 8192, KvType.F16) == 180 * MIB
    assert kv_bytes(model, 8192, KvType.Q8_0) == 180 * MIB * 17 // 32
    assert kv_bytes(model, 8192, KvType.Q4_0) == 180 * MIB * 9 // 32


def test_tokens_in_a_budget_of_2_4_gib() -> None:
    """At 128 KiB a token for 16 bits: by the bits alone, and as the engine stores them, each block with its scale."""
    budget_bytes = int(2.4 * (1 << 30))
    assert kv_bytes_per_token(MODEL_A, KvType.F16) == 128 << 10
    by_bits = {bits: nominal_tokens(budget_bytes, 128 << 10, bits) for bits in (16, 8, 4)}
    assert by_bits == {16: 19660, 8: 39321, 4: 78643}
    held = {kv_type: budget_bytes // kv_bytes_per_token(MODEL_A, kv_type) for kv_type in KvType}
    assert held == {KvType.F16: 19660, KvType.Q8_0: 37008, KvType.Q4_0: 69905}


def test_heads_may_differ_by_layer() -> None:
    model = geometry_of(metadata(block_count=3, attention__head_count_kv=(8, 4, 1)))
    assert model.kv_heads_by_layer == (8, 4, 1)
    assert kv_bytes_per_token(model, KvType.F16) == (8 + 4 + 1) * 256 * 2


def test_without_grouped_heads_every_head_has_its_own() -> None:
    assert geometry_of(metadata(attention__head_count_kv=None)).kv_heads_by_layer == (32,) * 32


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("block_count", 0),
        ("block_count", 1 << 31),
        ("block_count", None),
        ("block_count", "32"),
        ("block_count", True),
        ("block_count", 32.0),
        ("context_length", 0),
        ("attention.head_count_kv", 5),
        ("attention.head_count_kv", (8, 8)),
        ("attention.key_length", 0),
        ("embedding_length", -4096),
    ],
)
def test_dimensions_that_make_no_model_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ModelCorrupt) as refused:
        geometry_of(metadata(**{name: value}))
    assert refused.value.param == f"llama.{name}"


def test_kv_03_an_unset_context_is_the_largest_that_fits() -> None:
    weights = 4 << 30
    budget = Budget(available_bytes=weights + (2 << 30), weights_bytes=weights, reserve_bytes=256 * MIB)
    plan = plan_capacity(MODEL_A, budget, DEMAND)
    assert DEMAND.minimum_context_tokens <= plan.context_tokens <= 14336
    assert plan.total_bytes <= budget.available_bytes
    bigger = replace(DEMAND, context_tokens=plan.context_tokens + 256)
    with pytest.raises(InsufficientMemory):
        plan_capacity(MODEL_A, budget, bigger)


def test_kv_03_where_not_even_the_minimum_fits_both_figures_are_named() -> None:
    budget = Budget(available_bytes=(4 << 30) + 64 * MIB, weights_bytes=4 << 30, reserve_bytes=256 * MIB)
    with pytest.raises(InsufficientMemory) as refused:
        plan_capacity(MODEL_A, budget, DEMAND)
    error = refused.value
    needed = (4 << 30) + 256 * MIB + 2048 * (128 << 10) + overhead_bytes(MODEL_A, 63, context_tokens=2048)
    assert (error.needed_bytes, error.free_bytes) == (needed, budget.available_bytes)
    assert str(needed) in error.message
    assert str(budget.available_bytes) in error.message


def test_the_trained_context_is_a_limit() -> None:
    budget = Budget(available_bytes=1 << 50, weights_bytes=0, reserve_bytes=0)
    assert plan_capacity(MODEL_A, budget, DEMAND).context_tokens == 131072
    capped = replace(DEMAND, maximum_context_tokens=4096)
    assert plan_capacity(MODEL_A, budget, capped).context_tokens == 4096
    with pytest.raises(SettingsError) as refused:
        plan_capacity(MODEL_A, budget, replace(DEMAND, context_tokens=131073))
    assert refused.value.param == "context_tokens"
    assert "131072" in refused.value.message


def test_a_model_trained_for_less_than_the_minimum_gets_what_it_was_trained_for() -> None:
    model = geometry_of(metadata(context_length=1000))
    plan = plan_capacity(model, Budget(1 << 40, 0, 0), DEMAND)
    assert plan.context_tokens == 1000
    assert plan.kv_bytes == kv_bytes(model, 1024, KvType.F16)


def test_odd_heads_do_not_divide_into_quantised_blocks() -> None:
    odd = replace(MODEL_A, key_length=80)
    assert row_fits(odd, KvType.F16)
    assert not row_fits(odd, KvType.Q8_0)
    assert row_fits(MODEL_A, KvType.Q4_0)


geometries = st.builds(
    lambda layers, kv, head, vocabulary: ModelGeometry(
        architecture="llama",
        embedding_length=kv * head,
        feed_forward_length=4 * kv * head,
        heads=kv,
        kv_heads_by_layer=(kv,) * layers,
        key_length=head,
        value_length=head,
        vocabulary_tokens=vocabulary,
        trained_context_tokens=1 << 17,
    ),
    layers=st.integers(1, 64),
    kv=st.integers(1, 16),
    head=st.sampled_from([32, 64, 96, 128]),
    vocabulary=st.integers(1000, 300000),
)


@given(
    geometry=geometries,
    available_mib=st.integers(1, 1 << 16),
    weights_mib=st.integers(0, 1 << 15),
    slots=st.integers(1, 8),
    kv_type=st.sampled_from(KvType),
)
def test_a_plan_never_exceeds_the_budget_and_a_refusal_is_never_avoidable(
    geometry: ModelGeometry, available_mib: int, weights_mib: int, slots: int, kv_type: KvType
) -> None:
    budget = Budget(available_mib * MIB, weights_mib * MIB, 256 * MIB)
    demand = Demand(slots=slots, kv_type=kv_type, ubatch_tokens=63, minimum_context_tokens=2048)
    try:
        plan = plan_capacity(geometry, budget, demand)
    except InsufficientMemory as refused:
        assert refused.needed_bytes > refused.free_bytes
        return
    assert plan.total_bytes == sum(size_bytes for _, size_bytes in plan.lines) <= budget.available_bytes
    assert plan.context_tokens >= 2048
    assert plan.kv_bytes == kv_bytes(geometry, slots * aligned_tokens(plan.context_tokens), kv_type)
    if plan.context_tokens < geometry.trained_context_tokens:
        assert plan_of(geometry, budget, demand, plan.context_tokens + 256).total_bytes > budget.available_bytes


@given(
    geometry=geometries,
    draft=st.none() | geometries,
    adapters=st.integers(0, 64),
    weights_mib=st.integers(0, 1 << 15),
    prompt_cache_mib=st.integers(0, 1024),
    context_tokens=st.integers(256, 1 << 17),
    slots=st.integers(1, 8),
    kv_type=st.sampled_from(KvType),
)
def test_lines_are_the_total_always(
    geometry: ModelGeometry,
    draft: ModelGeometry | None,
    adapters: int,
    weights_mib: int,
    prompt_cache_mib: int,
    context_tokens: int,
    slots: int,
    kv_type: KvType,
) -> None:
    """Also for a plan that does not fit; and each line grows with what it is for, never the total alone."""
    budget = Budget(
        1 << 40, weights_mib * MIB, 256 * MIB, prompt_cache_mib * MIB, adapters * adapter_bytes(geometry, 16)
    )
    bare = Demand(slots=slots, kv_type=kv_type, ubatch_tokens=63, minimum_context_tokens=256)
    demand = replace(bare, draft=None if draft is None else Draft(draft, 10 * MIB))
    plan = plan_of(geometry, budget, demand, context_tokens)
    assert sum(size_bytes for _, size_bytes in plan.lines) == plan.total_bytes
    assert all(size_bytes >= 0 for _, size_bytes in plan.lines)
    without = plan_of(geometry, replace(budget, adapters_bytes=0), bare, context_tokens)
    assert plan.total_bytes - without.total_bytes == plan.draft_bytes + plan.adapters_bytes
    assert (plan.draft_bytes > 10 * MIB) is (draft is not None)


def test_an_adapter_of_rank_8_on_the_default_model_takes_what_was_measured() -> None:
    """A file of 1.06 MiB costs 1.3: the ratio, for an adapter on every matrix."""
    model = geometry_of(
        metadata(
            block_count=30,
            embedding_length=576,
            feed_forward_length=1536,
            attention__head_count=9,
            attention__head_count_kv=3,
        )
    )
    sides = 30 * (2 * (576 + 576) + 2 * (576 + 192) + 3 * (576 + 1536))
    assert adapter_bytes(model, 8) == sides * 8 * 2 * 125 // 100
