"""Draws the three red lines of a plan: all memory together, the context, and the pages of the model file.

Each line states what is needed and what there is, in its own unit; a plan holds when none is crossed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edge.memory.capacity import Budget, CapacityPlan, Demand, fitting_context_tokens, plan_of
from edge.memory.geometry import ModelGeometry
from edge.memory.kv import KvType, aligned_tokens, kv_bytes_per_token, nominal_tokens, row_fits


@dataclass(frozen=True, slots=True)
class RedLine:
    """One limit. `crossed` when more is needed than there is."""

    name: Literal["total", "context", "pages"]
    unit: Literal["bytes", "tokens", "pages"]
    needed: int
    limit: int

    @property
    def left(self) -> int:
        """What remains below the line; negative when it is crossed."""
        return self.limit - self.needed

    @property
    def crossed(self) -> bool:
        """Whether the plan does not hold."""
        return self.left < 0


@dataclass(frozen=True, slots=True)
class Pages:
    """How the model file lies in pages. `shared_bytes` of padding end in the last page."""

    page_bytes: int
    alignment_bytes: int
    data_offset_bytes: int
    file_bytes: int

    @property
    def count(self) -> int:
        """Pages of the page cache that the mapped file fills."""
        return -(-self.file_bytes // self.page_bytes)

    @property
    def data_page_aligned(self) -> bool:
        """Whether tensor data begins on a page, so that no page mixes header and weights."""
        return self.data_offset_bytes % self.page_bytes == 0


def red_lines(geometry: ModelGeometry, budget: Budget, plan: CapacityPlan, pages: Pages) -> tuple[RedLine, ...]:
    """Total: every share against what is free. Context: cells against what the cache's share of memory holds.

    Pages: the file's pages against what is left for the page cache once everything anonymous is there. Below it the
    kernel drops weights that the next token reads again from storage.
    """
    anonymous_bytes = plan.total_bytes - plan.weights_bytes
    kv_budget_bytes = budget.available_bytes - (plan.total_bytes - plan.kv_bytes)
    cells = plan.slots * aligned_tokens(plan.context_tokens)
    bytes_per_cell = -(-plan.kv_bytes // cells)
    return (
        RedLine("total", "bytes", plan.total_bytes, budget.available_bytes),
        RedLine("context", "tokens", cells, max(0, kv_budget_bytes) // bytes_per_cell),
        RedLine("pages", "pages", pages.count, max(0, budget.available_bytes - anonymous_bytes) // pages.page_bytes),
    )


@dataclass(frozen=True, slots=True)
class CapacityRow:
    """What one KV type allows in the memory that there is. Contexts are per slot; 0 where none fits."""

    kv_type: KvType
    bytes_per_token: int
    total_tokens: int
    """Over all slots: the budget of the cache through the bytes of a token, whatever the model was trained for."""
    nominal_tokens: int
    """The same by the bits in the type's name, without the scales of its blocks."""
    context_tokens: int
    total_bytes: int
    supported: bool = True


def capacity_table(geometry: ModelGeometry, budget: Budget, demand: Demand) -> tuple[CapacityRow, ...]:
    """A row for each KV type, with the largest context per slot that fits and was trained for."""
    return tuple(_row(geometry, budget, demand, kv_type) for kv_type in KvType)


def _row(geometry: ModelGeometry, budget: Budget, demand: Demand, kv_type: KvType) -> CapacityRow:
    wanted = Demand(
        slots=demand.slots,
        kv_type=kv_type,
        ubatch_tokens=demand.ubatch_tokens,
        minimum_context_tokens=demand.minimum_context_tokens,
        draft=demand.draft,
    )
    if not row_fits(geometry, kv_type):
        return CapacityRow(kv_type, 0, 0, 0, 0, 0, supported=False)
    context = min(fitting_context_tokens(geometry, budget, wanted), geometry.trained_context_tokens)
    plan = plan_of(geometry, budget, wanted, context)
    free_bytes = max(0, budget.available_bytes - (plan.total_bytes - plan.kv_bytes))
    per_token = kv_bytes_per_token(geometry, kv_type)
    return CapacityRow(
        kv_type=kv_type,
        bytes_per_token=per_token,
        total_tokens=free_bytes // per_token,
        nominal_tokens=nominal_tokens(free_bytes, kv_bytes_per_token(geometry, KvType.F16), kv_type.nominal_bits),
        context_tokens=context,
        total_bytes=plan.total_bytes,
    )
