"""Decides how much a running device gives back when memory runs short, and when it takes it again.

A ladder of steps: the full plan, fewer slots, a shorter context, nothing new. Down at once, as far as the shortfall
asks; up one step at a time, only after a calm dwell and only when the larger step would fit with room to spare, so
that two programs do not chase each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from edge.memory.kv import aligned_tokens


@dataclass(frozen=True, slots=True)
class Step:
    """One rung. `private_bytes` is what its engine process adds to a machine that has the weights mapped already."""

    slots: int
    context_tokens: int
    private_bytes: int
    admits: bool = True


@dataclass(frozen=True, slots=True)
class Pressure:
    """One reading. None is not known. Stall shares are the kernel's averages over 10 s, in percent."""

    available_bytes: int | None
    some_stall_percent: float | None = None
    full_stall_percent: float | None = None


@dataclass(frozen=True, slots=True)
class PressureRules:
    """Below `low_bytes` of available memory the device gives back; below `critical_bytes` it takes nothing new."""

    low_bytes: int
    critical_bytes: int
    hysteresis_bytes: int
    some_stall_percent: float = 10.0
    full_stall_percent: float = 10.0
    settle_ms: int = 5_000
    """After a step down, how long its effect is waited for."""
    dwell_ms: int = 30_000
    """How long memory must have been plentiful before a step up."""


@dataclass(frozen=True, slots=True)
class StepState:
    """The rung in force (0 is the full plan), and what the next decision has to remember (monotonic milliseconds)."""

    rung: int = 0
    changed_ms: int | None = None
    calm_since_ms: int | None = None


def shapes(slots: int, context_tokens: int, minimum_context_tokens: int) -> tuple[tuple[int, int], ...]:
    """Slots and context of each rung that serves: slots are halved down to one, then the context to the minimum."""
    found = [(slots, context_tokens)]
    while slots > 1:
        slots //= 2
        found.append((slots, context_tokens))
    least = min(minimum_context_tokens, context_tokens)
    while context_tokens > least:
        context_tokens = max(least, aligned_tokens(context_tokens // 2))
        found.append((slots, context_tokens))
    return tuple(found)


def decide(
    state: StepState, reading: Pressure, steps: tuple[Step, ...], now_ms: int, rules: PressureRules
) -> StepState:
    """The state after one reading. A reading that says nothing changes nothing, and calms nothing."""
    if reading.available_bytes is None and reading.some_stall_percent is None:
        return replace(state, calm_since_ms=None)
    last = len(steps) - 1
    if _critical(reading, rules):
        return state if state.rung == last else StepState(last, now_ms)
    if _short(reading, rules):
        settled = state.changed_ms is None or now_ms - state.changed_ms >= rules.settle_ms
        if settled and state.rung < last:
            return StepState(_lower(state.rung, reading, steps, rules), now_ms)
        return replace(state, calm_since_ms=None)
    if state.rung == 0 or not _plentiful(state.rung, reading, steps, rules):
        return replace(state, calm_since_ms=None)
    since = state.calm_since_ms if state.calm_since_ms is not None else now_ms
    if now_ms - since < rules.dwell_ms:
        return replace(state, calm_since_ms=since)
    return StepState(state.rung - 1, now_ms)


def can_overlap(step: Step, available_bytes: int | None, rules: PressureRules) -> bool:
    """Whether the engine of `step` may be started beside the one that serves."""
    return available_bytes is not None and available_bytes - step.private_bytes >= rules.critical_bytes


def _critical(reading: Pressure, rules: PressureRules) -> bool:
    return reading.available_bytes is not None and reading.available_bytes < rules.critical_bytes


def _short(reading: Pressure, rules: PressureRules) -> bool:
    return (
        (reading.available_bytes is not None and reading.available_bytes < rules.low_bytes)
        or (reading.some_stall_percent or 0.0) >= rules.some_stall_percent
        or (reading.full_stall_percent or 0.0) >= rules.full_stall_percent
    )


def _lower(rung: int, reading: Pressure, steps: tuple[Step, ...], rules: PressureRules) -> int:
    """The first rung below that gives back what is missing; the last where none does."""
    missing = max(0, rules.low_bytes - reading.available_bytes) if reading.available_bytes is not None else 0
    for lower in range(rung + 1, len(steps)):
        if steps[lower].admits and steps[rung].private_bytes - steps[lower].private_bytes >= missing:
            return lower
    return len(steps) - 1


def _plentiful(rung: int, reading: Pressure, steps: tuple[Step, ...], rules: PressureRules) -> bool:
    """Whether the rung above would fit beside the present one and still leave more than the low mark."""
    if (reading.some_stall_percent or 0.0) >= rules.some_stall_percent / 2 or reading.full_stall_percent:
        return False
    if reading.available_bytes is None:
        return True
    same_engine = steps[rung - 1].private_bytes == steps[rung].private_bytes
    wanted = 0 if same_engine else steps[rung - 1].private_bytes
    return reading.available_bytes >= rules.low_bytes + rules.hysteresis_bytes + wanted
