"""The three red lines and the two tables of a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.memory.capacity import MIB, Budget, Demand, plan_capacity, plan_of
from edge.memory.kv import KvType
from edge.memory.loading import Loading, Storage, loading_table
from edge.memory.redlines import Pages, capacity_table, red_lines
from shared.errors import InsufficientMemory
from tests.edge.memory.test_geometry import gemma3_270m, qwen3_0_6b

MODEL = qwen3_0_6b()
WEIGHTS = 600 * MIB
BUDGET = Budget(available_bytes=4096 * MIB, weights_bytes=WEIGHTS, reserve_bytes=256 * MIB)
DEMAND = Demand(slots=2, kv_type=KvType.F16, ubatch_tokens=63, minimum_context_tokens=2048)
PAGES = Pages(page_bytes=4096, alignment_bytes=32, data_offset_bytes=1 << 20, file_bytes=WEIGHTS)


@given(available_mib=st.integers(1, 1 << 15), slots=st.integers(1, 8), kv_type=st.sampled_from(KvType))
def test_no_line_is_crossed_by_a_plan_and_total_is_by_one_that_was_refused(
    available_mib: int, slots: int, kv_type: KvType
) -> None:
    budget = replace(BUDGET, available_bytes=available_mib * MIB)
    demand = replace(DEMAND, slots=slots, kv_type=kv_type)
    try:
        plan = plan_capacity(MODEL, budget, demand)
    except InsufficientMemory:
        lines = red_lines(MODEL, budget, plan_of(MODEL, budget, demand, 2048), PAGES)
        assert {line.name for line in lines if line.crossed} >= {"total"}
        return
    lines = red_lines(MODEL, budget, plan, PAGES)
    assert [line.name for line in lines] == ["total", "context", "pages"]
    assert not [line for line in lines if line.crossed]
    assert lines[0].needed == plan.total_bytes
    assert lines[0].left == budget.available_bytes - plan.total_bytes


def test_pages_are_whole_and_follow_the_kernel() -> None:
    small = replace(PAGES, file_bytes=16385, data_offset_bytes=4096)
    assert (small.count, small.data_page_aligned) == (5, True)
    large = replace(small, page_bytes=16384)
    assert (large.count, large.data_page_aligned) == (2, False)


def test_the_capacity_table_has_a_row_for_each_type_and_the_scales_of_blocks_count() -> None:
    rows = {row.kv_type: row for row in capacity_table(MODEL, BUDGET, DEMAND)}
    assert [rows[kv_type].bytes_per_token for kv_type in KvType] == [114688, 60928, 32256]
    assert rows[KvType.F16].nominal_tokens == rows[KvType.F16].total_tokens
    assert rows[KvType.Q8_0].nominal_tokens > rows[KvType.Q8_0].total_tokens
    for kv_type, row in rows.items():
        plan = plan_capacity(MODEL, BUDGET, replace(DEMAND, kv_type=kv_type))
        assert (row.context_tokens, row.total_bytes) == (plan.context_tokens, plan.total_bytes)
        assert row.context_tokens * 2 <= row.total_tokens


def test_heads_that_do_not_divide_and_memory_that_does_not_suffice_show_in_the_table() -> None:
    odd = replace(MODEL, key_length=80)
    assert [row.supported for row in capacity_table(odd, BUDGET, DEMAND)] == [True, False, False]
    tight = replace(BUDGET, available_bytes=WEIGHTS)
    assert [row.context_tokens for row in capacity_table(MODEL, tight, DEMAND)] == [0, 0, 0]


def test_windows_leave_more_context_than_the_bytes_of_a_token_say() -> None:
    budget = Budget(available_bytes=560 * MIB, weights_bytes=242 * MIB, reserve_bytes=128 * MIB)
    windowed = gemma3_270m()
    full = replace(windowed, window_tokens=None, windowed_by_layer=())
    demand = replace(DEMAND, slots=1)
    assert plan_capacity(windowed, budget, demand).context_tokens > plan_capacity(full, budget, demand).context_tokens


def test_loading_trades_the_start_against_the_first_token() -> None:
    storage = Storage(read_bytes_per_s=100 * MIB, request_s=0.001, readahead_bytes=MIB)
    rows = {row.loading: row for row in loading_table(400 * MIB, storage, token_s=0.5, window_bytes=100 * MIB)}
    assert (rows[Loading.MMAP].start_s, rows[Loading.MMAP].first_token_s) == (0.0, pytest.approx(4.0 + 400 * 0.001))
    assert (rows[Loading.LOCK].start_s, rows[Loading.LOCK].first_token_s) == (pytest.approx(4.4), 0.0)
    assert (rows[Loading.PRELOAD].start_s, rows[Loading.PRELOAD].first_token_s) == (pytest.approx(4.004), 0.0)
    assert rows[Loading.PREFETCH].start_s == pytest.approx(1.001)
    assert rows[Loading.PREFETCH].first_token_s == pytest.approx(4.004 - 1.001 - 0.5)
    assert [row.evictable for row in rows.values()] == [True, False, True, True]
    assert rows[Loading.LOCK].needs_bytes == 400 * MIB


@given(
    weights=st.integers(1, 1 << 40), rate=st.floats(1e6, 1e11), request_s=st.floats(0, 0.1), token_s=st.floats(0, 60)
)
def test_no_way_makes_the_first_answer_later_than_reading_by_faults(
    weights: int, rate: float, request_s: float, token_s: float
) -> None:
    rows = loading_table(weights, Storage(rate, request_s), token_s=token_s)
    waits = {row.loading: row.start_s + row.first_token_s for row in rows}
    assert all(wait <= waits[Loading.MMAP] * 1.001 + request_s for wait in waits.values())
    assert all(row.first_token_s >= 0 for row in rows)
