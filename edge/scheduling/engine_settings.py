"""Turns a plan into what llama.cpp can obey: layers to offload, exceptions by tensor, threads, the draft's device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from edge.devices.delegation import DelegationKind, OperatorKind
from edge.devices.unit import UnitKind, UnitProfile
from edge.scheduling.schedule import Placed, Schedule
from edge.scheduling.tuning import MOST_THREADS, Spin, Tuning

_HOST_BUFFER = "CPU"
_TENSORS = {
    OperatorKind.QKV: "attn_(q|k|v|qkv)",
    OperatorKind.ATTENTION_OUTPUT: "attn_output",
    OperatorKind.FEED_FORWARD: "ffn_(gate|up|down)",
}


class ChosenBy(StrEnum):
    """What threads and batch were chosen by."""

    TRIALS = "trials on this device"
    FORECAST = "forecast from measurements"
    RULE = "rule"


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Values for the engine, by its own names. `tensor_overrides` are pairs of a pattern and a buffer type.

    `obeyed` is False where the plan uses a unit that this engine cannot drive, such as an NPU: then these are the best
    that it can do, and the plan is for another runtime.
    """

    n_gpu_layers: int
    threads: int
    threads_batch: int
    tensor_overrides: tuple[tuple[str, str], ...] = ()
    draft_device: str | None = None
    obeyed: bool = True
    spin: Spin = Spin.LONG
    batch_tokens: int | None = None
    """None: as it is without a measurement."""
    stall_s: float | None = None
    """What a stream may wait for one batch of another client's long prompt, where that was measured."""
    chosen_by: ChosenBy = ChosenBy.RULE


def engine_settings(
    plan: Schedule,
    units: Sequence[UnitProfile],
    layers: int,
    *,
    decode_by_threads: Mapping[int, float] | None = None,
    prefill_by_threads: Mapping[int, float] | None = None,
    tuning: Tuning | None = None,
) -> EngineSettings:
    """The settings that follow from `plan`.

    llama.cpp offloads the last `n_gpu_layers` layers, the head counting as one more; what the plan leaves with the
    processor among them becomes an override. One core is left to the rest of the machine while decoding: with a busy
    process beside it, decoding on every core was measured 70 times slower than on one less. Fewer threads are taken
    where they were measured faster (`decode_by_threads` and `prefill_by_threads`, tokens/s). What trials of the engine
    itself have shown (`tuning`) counts before all that.
    """
    kinds = {unit.name: unit for unit in units}
    drivable = {
        name
        for name, unit in kinds.items()
        if unit.kind is UnitKind.GPU and unit.delegation.kind is DelegationKind.PER_OPERATOR
    }
    host = units[0]
    offloaded = [placed for placed in plan.operators if placed.unit in drivable]
    first = min((placed.layer for placed in offloaded if placed.layer is not None), default=layers)
    head = any(placed.kind is OperatorKind.HEAD for placed in offloaded)
    settings = EngineSettings(
        n_gpu_layers=layers - first + (1 if head else 0),
        threads=_threads(min(max(1, (host.cores or 1) - 1), MOST_THREADS), decode_by_threads or {}),
        threads_batch=_threads(min(host.cores or 1, MOST_THREADS), prefill_by_threads or {}),
        tensor_overrides=_overrides(plan.operators, drivable, first),
        draft_device=offloaded[0].unit if offloaded else None,
        obeyed=all(placed.unit in drivable or placed.unit == host.name for placed in plan.operators),
        chosen_by=ChosenBy.FORECAST if decode_by_threads or prefill_by_threads else ChosenBy.RULE,
    )
    return settings if tuning is None else _tuned(settings, tuning)


def _tuned(settings: EngineSettings, tuning: Tuning) -> EngineSettings:
    return replace(
        settings,
        threads=tuning.threads,
        threads_batch=tuning.threads_batch,
        spin=tuning.spin,
        batch_tokens=tuning.batch_tokens,
        stall_s=tuning.stall_s,
        chosen_by=ChosenBy.TRIALS,
    )


def _threads(most: int, tokens_per_s: Mapping[int, float]) -> int:
    """The fastest of those measured up to `most`, if `most` itself was measured; else `most`."""
    if most not in tokens_per_s:
        return most
    return max((threads for threads in tokens_per_s if threads <= most), key=lambda threads: tokens_per_s[threads])


def _overrides(operators: Sequence[Placed], offloaded: set[str], first: int) -> tuple[tuple[str, str], ...]:
    """One for each kind of operator that stays with the processor in offloaded layers, naming those layers."""
    staying: dict[OperatorKind, list[int]] = {}
    for placed in operators:
        if placed.layer is not None and placed.layer >= first and placed.unit not in offloaded:
            staying.setdefault(placed.kind, []).append(placed.layer)
    return tuple(
        (rf"blk\.({'|'.join(map(str, found))})\.{_TENSORS[kind]}\.weight", _HOST_BUFFER)
        for kind, found in staying.items()
        if kind in _TENSORS
    )
