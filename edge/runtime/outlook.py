"""Answers what a model would get on a device: the plan, its three red lines, and the tables of capacity and loading."""

from __future__ import annotations

from dataclasses import dataclass, replace

from edge.devices.profile import DeviceProfile
from edge.memory.capacity import MIB, Budget, CapacityPlan, Demand, Draft, adapter_bytes, plan_capacity
from edge.memory.loading import Loading, LoadingRow, Storage, loading_table
from edge.memory.redlines import CapacityRow, Pages, RedLine, capacity_table, red_lines
from edge.packages.outline import Outline
from edge.runtime.plan import PlanRequest, check_cache, ubatch_tokens
from shared.errors import SettingsError

ADAPTER_RANK = 16
ADAPTERS_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked beside the model itself."""

    request: PlanRequest
    draft: Outline | None = None
    adapters: int = 0
    adapter_rank: int = ADAPTER_RANK

    def __post_init__(self) -> None:
        if not 0 <= self.adapters <= ADAPTERS_LIMIT:
            raise SettingsError(f"adapters must be between 0 and {ADAPTERS_LIMIT}.", param="adapters")


@dataclass(frozen=True, slots=True)
class Outlook:
    """The whole answer; `plan` holds, or there is no outlook."""

    outline: Outline
    device: DeviceProfile
    plan: CapacityPlan
    draft: Outline | None
    adapters: int
    pages: Pages
    red_lines: tuple[RedLine, ...]
    capacity: tuple[CapacityRow, ...]
    loading: tuple[LoadingRow, ...]
    loading_used: Loading


def outlook(outline: Outline, device: DeviceProfile, wish: Wish, *, planned: CapacityPlan | None = None) -> Outlook:
    """Plan `outline` on `device` exactly as the engine is planned.

    `planned` is the plan of an engine with an arithmetic of its own (ONNX); its KV type is fixed by the package, so
    there is no table of others.

    Raises:
        InsufficientMemory: the context asked for, or the least, does not fit; names needed and free bytes.
        SettingsError: an option does not suit the model, or the draft has another vocabulary.
    """
    geometry, request = outline.geometry, wish.request
    if planned is None:
        check_cache(geometry, request.kv_type)
    elif wish.draft is not None or wish.adapters:
        raise SettingsError("The engine of this package takes neither draft nor adapters.", param="draft")
    _check_draft(outline, wish.draft)
    budget, demand = _budget(outline, device, wish), _demand(outline, wish)
    plan = planned or plan_capacity(geometry, budget, demand)
    pages = Pages(
        page_bytes=device.memory.page,
        alignment_bytes=outline.alignment_bytes,
        data_offset_bytes=outline.data_offset_bytes,
        file_bytes=outline.file_bytes,
    )
    storage = Storage(device.storage.bytes_per_s, device.storage.request_s, device.storage.readahead)
    return Outlook(
        outline=outline,
        device=device,
        plan=plan,
        draft=wish.draft,
        adapters=wish.adapters,
        pages=pages,
        red_lines=red_lines(geometry, budget, plan, pages),
        capacity=() if planned else capacity_table(geometry, budget, replace(demand, context_tokens=None)),
        loading=loading_table(outline.file_bytes, storage, token_s=outline.file_bytes / device.memory.bytes_per_s),
        loading_used=Loading.LOCK if request.lock_weights else Loading.MMAP,
    )


def _budget(outline: Outline, device: DeviceProfile, wish: Wish) -> Budget:
    return Budget(
        available_bytes=device.memory.available,
        weights_bytes=outline.file_bytes,
        reserve_bytes=wish.request.reserve_bytes,
        prompt_cache_bytes=wish.request.prompt_cache_mib * MIB,
        adapters_bytes=wish.adapters * adapter_bytes(outline.geometry, wish.adapter_rank),
    )


def _demand(outline: Outline, wish: Wish) -> Demand:
    request = replace(wish.request, pooling=outline.pooling)
    return Demand(
        slots=request.slots,
        kv_type=request.kv_type,
        ubatch_tokens=ubatch_tokens(request),
        minimum_context_tokens=request.minimum_context_tokens,
        context_tokens=request.context_tokens,
        maximum_context_tokens=request.maximum_context_tokens,
        draft=None if wish.draft is None else Draft(wish.draft.geometry, wish.draft.file_bytes),
    )


def _check_draft(outline: Outline, draft: Outline | None) -> None:
    if draft is not None and draft.geometry.vocabulary_tokens != outline.geometry.vocabulary_tokens:
        raise SettingsError(
            f"The draft has {draft.geometry.vocabulary_tokens} tokens, the model "
            f"{outline.geometry.vocabulary_tokens}: a draft must share its vocabulary.",
            param="draft",
        )
