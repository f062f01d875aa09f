"""Plans for devices of several units: what falls back, what that costs, and when the whole graph moves."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.devices.delegation import Compiled, OperatorKind, PerOperator, Refusal, WholeGraph
from edge.devices.unit import UnitKind
from edge.scheduling.engine_settings import engine_settings
from edge.scheduling.schedule import Demand, Reason, Schedule, schedule
from tests.edge.scheduling.models import GEOMETRY, MODEL, accelerator, processor

DEMAND = Demand(context_tokens=512, output_tokens=128)
BLOCK = frozenset(OperatorKind) - {OperatorKind.EMBEDDING, OperatorKind.HEAD}
WITHOUT_ATTENTION = PerOperator(operators=frozenset(OperatorKind) - {OperatorKind.ATTENTION})


def units_of(plan: Schedule, kind: OperatorKind) -> set[str]:
    return {placed.unit for placed in plan.operators if placed.kind is kind}


def test_one_unit_runs_everything() -> None:
    plan = schedule(MODEL, (processor(),), DEMAND)
    assert (plan.reason, plan.units, plan.tax_ratio) == (Reason.ONLY_UNIT, ("cpu",), 0.0)
    assert plan.prefill.tokens_per_s == pytest.approx(512 / sum(placed.prefill_s for placed in plan.operators))
    assert plan.decode.tokens_per_s == pytest.approx(1 / sum(placed.decode_s for placed in plan.operators))
    assert plan.prefill.handover_s == plan.decode.handover_s == 0


def test_a_faster_unit_takes_what_it_can() -> None:
    plan = schedule(MODEL, (processor(), accelerator()), DEMAND)
    alone = schedule(MODEL, (processor(),), DEMAND)
    assert units_of(plan, OperatorKind.FEED_FORWARD) == {"gpu"}
    assert plan.decode.tokens_per_s > 5 * alone.decode.tokens_per_s


def test_a_unit_that_is_too_far_away_is_left_alone() -> None:
    plan = schedule(MODEL, (processor(), accelerator(handover_s=1.0)), DEMAND)
    assert plan.units == ("cpu",)
    assert plan.tax_ratio == 0.0


def test_fallback_over_budget_moves_the_whole_graph_and_says_so() -> None:
    gpu = accelerator(delegation=WITHOUT_ATTENTION, handover_s=1e-5)
    plan = schedule(MODEL, (processor(), gpu), DEMAND)
    assert plan.reason is Reason.FALLBACK_OVER_BUDGET
    assert plan.units == ("cpu",)
    assert plan.given_up_tax_ratio is not None
    assert plan.given_up_tax_ratio > 0.15
    assert set(plan.given_up_units) == {"cpu", "gpu"}
    assert {(each.unit, each.kind, each.why) for each in plan.refused} == {
        ("gpu", OperatorKind.ATTENTION, Refusal.KIND)
    }
    other = accelerator("second", UnitKind.NPU, WholeGraph(), times=2)
    moved = schedule(MODEL, (processor(), gpu, other), DEMAND)
    assert moved.units == ("second",)


def test_fallback_within_budget_is_kept_and_its_share_is_told() -> None:
    gpu = accelerator(delegation=PerOperator(operators=frozenset(OperatorKind) - {OperatorKind.HEAD}), times=2)
    plan = schedule(MODEL, (processor(), gpu), DEMAND)
    assert plan.reason is Reason.FASTEST
    assert units_of(plan, OperatorKind.HEAD) == {"cpu"}
    assert 0 < plan.tax_ratio <= 0.15
    strict = schedule(MODEL, (processor(), gpu), replace(DEMAND, tax_budget_ratio=0.0))
    assert strict.reason is Reason.FALLBACK_OVER_BUDGET
    assert strict.given_up_tax_ratio == pytest.approx(plan.tax_ratio)


def test_a_whole_graph_unit_takes_all_or_nothing() -> None:
    takes = schedule(MODEL, (processor(), accelerator("npu", UnitKind.NPU, WholeGraph())), DEMAND)
    assert takes.units == ("npu",)
    lacks_one = WholeGraph(operators=frozenset(OperatorKind) - {OperatorKind.ROPE})
    refused = schedule(MODEL, (processor(), accelerator("npu", UnitKind.NPU, lacks_one)), DEMAND)
    assert refused.units == ("cpu",)
    assert {each.why for each in refused.refused} == {Refusal.KIND, Refusal.WHOLE_GRAPH}


def test_a_compiled_unit_pays_for_padding_and_takes_no_longer_context() -> None:
    fitting = Compiled(pass_tokens=(1, 63), context_tokens=1024)
    padded = Compiled(pass_tokens=(1, 1024), context_tokens=1024)
    exact, wasteful = (
        schedule(MODEL, (processor(), accelerator("npu", UnitKind.NPU, each)), DEMAND) for each in (fitting, padded)
    )
    assert exact.prefill.tokens_per_s > 3 * wasteful.prefill.tokens_per_s
    long = schedule(
        MODEL, (processor(), accelerator("npu", UnitKind.NPU, fitting)), Demand(context_tokens=1000, output_tokens=128)
    )
    assert long.units == ("cpu",)
    assert {each.why for each in long.refused} == {Refusal.CONTEXT}


def test_types_that_a_unit_lacks_fall_back() -> None:
    gpu = accelerator(delegation=PerOperator(weight_types=frozenset({"F32", "Q8_0"})))
    plan = schedule(MODEL, (processor(), gpu), DEMAND)
    why = {each.kind: each.why for each in plan.refused}
    assert why[OperatorKind.FEED_FORWARD] is Refusal.WEIGHT_TYPE
    assert OperatorKind.HEAD not in why


def test_a_small_memory_holds_as_many_last_layers_as_fit() -> None:
    gpu = accelerator(memory=40 << 20)
    plan = schedule(MODEL, (processor(), gpu), DEMAND)
    assert plan.reason is Reason.MEMORY
    offloaded = {placed.layer for placed in plan.operators if placed.unit == "gpu"} - {None}
    assert offloaded
    assert offloaded == set(range(min(offloaded), 30))  # type: ignore[type-var]
    engine = engine_settings(plan, (processor(), gpu), 30)
    assert engine.n_gpu_layers in (len(offloaded), len(offloaded) + 1)
    assert engine.tensor_overrides == ()
    none = schedule(MODEL, (processor(), accelerator(memory=1 << 20)), DEMAND)
    assert none.units == ("cpu",)


@settings(max_examples=60, deadline=None)
@given(
    times=st.floats(0.2, 50),
    handover_s=st.floats(0, 1e-3),
    lacking=st.sets(st.sampled_from(sorted(BLOCK)), max_size=3),
    budget=st.floats(0, 1),
)
def test_a_plan_is_the_best_of_all_by_kind_or_one_unit(
    times: float, handover_s: float, lacking: set[OperatorKind], budget: float
) -> None:
    """One layer, so that every placement can be tried."""
    small = replace(MODEL, geometry=replace(GEOMETRY, kv_heads_by_layer=(3,)))
    delegation = PerOperator(operators=frozenset(OperatorKind) - lacking)
    units = (processor(), accelerator(delegation=delegation, times=times, handover_s=handover_s))
    demand = replace(DEMAND, tax_budget_ratio=budget)
    plan = schedule(small, units, demand)

    def whole_s(each: Schedule) -> float:
        return each.prefill.seconds + demand.output_tokens * each.decode.seconds

    if plan.reason is Reason.FALLBACK_OVER_BUDGET:
        assert len(plan.units) == 1
        return
    assert plan.tax_ratio <= budget
    for kinds in itertools.chain.from_iterable(itertools.combinations(OperatorKind, n) for n in (0, 1, 4, 8)):
        fixed = PerOperator(operators=frozenset(kinds) - lacking or frozenset({OperatorKind.NORM}) - lacking or BLOCK)
        if not fixed.operators <= delegation.operators:
            continue
        other = (units[0], accelerator(delegation=fixed, times=times, handover_s=handover_s))
        assert whole_s(plan) <= whole_s(schedule(small, other, replace(demand, tax_budget_ratio=1.0))) * (1 + 1e-9)


class TestEngineSettings:
    def test_everything_on_the_processor(self) -> None:
        plan = schedule(MODEL, (processor(),), DEMAND)
        engine = engine_settings(plan, (processor(),), 30)
        assert (engine.n_gpu_layers, engine.threads, engine.threads_batch) == (0, 3, 4)
        assert (engine.tensor_overrides, engine.draft_device, engine.obeyed) == ((), None, True)

    def test_everything_offloaded_counts_the_head_as_a_layer(self) -> None:
        units = (processor(), accelerator())
        engine = engine_settings(schedule(MODEL, units, DEMAND), units, 30)
        assert engine.n_gpu_layers in (30, 31)
        assert engine.draft_device == "gpu"

    def test_what_stays_behind_becomes_an_override(self) -> None:
        gpu = accelerator(delegation=PerOperator(operators=BLOCK - {OperatorKind.FEED_FORWARD}))
        units = (processor(), gpu)
        plan = schedule(MODEL, units, replace(DEMAND, tax_budget_ratio=1.0))
        engine = engine_settings(plan, units, 30)
        layers = "|".join(map(str, range(30)))
        assert (rf"blk\.({layers})\.ffn_(gate|up|down)\.weight", "CPU") in engine.tensor_overrides

    def test_an_npu_is_beyond_the_engine(self) -> None:
        units = (processor(), accelerator("npu", UnitKind.NPU, WholeGraph()))
        engine = engine_settings(schedule(MODEL, units, DEMAND), units, 30)
        assert (engine.obeyed, engine.n_gpu_layers, engine.draft_device) == (False, 0, None)

    @pytest.mark.parametrize(
        ("cores", "rates", "threads"),
        [
            (4, {}, 3),
            (1, {}, 1),
            (4, {1: 50.0, 2: 80.0, 3: 70.0, 4: 90.0}, 2),
            (4, {1: 90.0, 2: 80.0}, 3),
            (2, {1: 50.0, 2: 80.0}, 1),
        ],
    )
    def test_threads_leave_a_core_and_follow_what_was_measured(
        self, cores: int, rates: dict[int, float], threads: int
    ) -> None:
        units = (processor(cores=cores),)
        engine = engine_settings(schedule(MODEL, units, DEMAND), units, 30, decode_by_threads=rates)
        assert engine.threads == threads
