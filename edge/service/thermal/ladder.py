"""Decides the thermal level from filtered temperatures, and what each level takes away.

Up at once, down slowly: a threshold that is passed raises the level with that sample; a level is left one rung at a
time, after the temperature has stayed below the threshold minus the hysteresis for the dwell time. A level that was
left is entered again only a dwell later, unless the device is critical: so nothing that swings changes the level more
than once a dwell. A sensor that goes silent makes the level `unknown`, which is handled as `warm`; a device that was
hot or critical then stays so for a holding time, because silence is no sign of cooling. Battery raises the level,
never lowers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shared.fleet import ThermalLevel

_RUNGS = (ThermalLevel.NOMINAL, ThermalLevel.WARM, ThermalLevel.HOT, ThermalLevel.CRITICAL)
_SEVERITY = {level: rank for rank, level in enumerate(_RUNGS)} | {ThermalLevel.UNKNOWN: 1}


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Degrees Celsius from which each level holds, and how slowly it is left (milliseconds)."""

    warm_c: float
    hot_c: float
    critical_c: float
    hysteresis_c: float
    dwell_ms: int
    lost_hold_ms: int

    def entry_c(self, level: ThermalLevel) -> float:
        """The temperature at which `level` is entered; minus infinity for nominal."""
        return {
            ThermalLevel.WARM: self.warm_c,
            ThermalLevel.HOT: self.hot_c,
            ThermalLevel.CRITICAL: self.critical_c,
        }.get(level, float("-inf"))

    def next_entry_c(self, level: ThermalLevel) -> float | None:
        """The temperature at which `level` gives way to a severer one; None where there is none."""
        above = _SEVERITY[level] + 1
        return self.entry_c(_RUNGS[above]) if above < len(_RUNGS) else None


@dataclass(frozen=True, slots=True)
class LadderState:
    """Level in force and what the next step has to remember (monotonic milliseconds)."""

    level: ThermalLevel = ThermalLevel.UNKNOWN
    cool_since_ms: int | None = None
    """Since when the temperature allows a lower level without interruption."""
    last_seen_ms: int | None = None
    """When a temperature was last known."""
    fell_ms: int | None = None
    """When the level was lowered last."""


@dataclass(frozen=True, slots=True)
class Measures:
    """What a level takes away. None means no limit of its own; `threads_ratio` is the share of threads that decode."""

    speculation: bool = True
    threads_ratio: float = 1.0
    slot_limit: int | None = None
    output_cap_tokens: int | None = None
    admits: bool = True
    derate_ratio: float = 1.0


Table = Mapping[ThermalLevel, Measures]
"""The measures of every level but `unknown`, which has those of `warm`."""


def step(
    state: LadderState, temperature_c: float | None, now_ms: int, limits: Thresholds, least_c: float | None = None
) -> LadderState:
    """The state after one filtered reading; None is a temperature that is not known, or only to be `least_c`."""
    if temperature_c is None:
        if least_c is not None and _SEVERITY[_entered(least_c, limits)] > _SEVERITY[ThermalLevel.UNKNOWN]:
            return step(state, max(least_c, limits.entry_c(state.level)), now_ms, limits)
        return _without_reading(state, now_ms, limits)
    seen = replace(state, last_seen_ms=now_ms)
    target = _entered(temperature_c, limits)
    if state.level is ThermalLevel.UNKNOWN:
        return _after_unknown(state, seen, target, limits)
    if _SEVERITY[target] > _SEVERITY[state.level]:
        fell_lately = state.fell_ms is not None and now_ms - state.fell_ms < limits.dwell_ms
        if fell_lately and target is not ThermalLevel.CRITICAL:
            return replace(seen, cool_since_ms=None)
        return replace(seen, level=target, cool_since_ms=None)
    if temperature_c >= limits.entry_c(state.level) - limits.hysteresis_c:
        return replace(seen, cool_since_ms=None)
    since = state.cool_since_ms if state.cool_since_ms is not None else now_ms
    if now_ms - since < limits.dwell_ms:
        return replace(seen, cool_since_ms=since)
    # The next rung needs a dwell of its own, which starts now.
    return replace(seen, level=_RUNGS[_SEVERITY[state.level] - 1], cool_since_ms=now_ms, fell_ms=now_ms)


def with_floor(level: ThermalLevel, floor: ThermalLevel | None) -> ThermalLevel:
    """The severer of a level and a floor from elsewhere (battery)."""
    return floor if floor is not None and _SEVERITY[floor] > _SEVERITY[level] else level


def measures(level: ThermalLevel, table: Table) -> Measures:
    """What is in force on `level`."""
    return table[ThermalLevel.WARM if level is ThermalLevel.UNKNOWN else level]


def is_severer(level: ThermalLevel, other: ThermalLevel) -> bool:
    """Whether `level` takes away more than `other`."""
    return _SEVERITY[level] > _SEVERITY[other]


def _entered(temperature_c: float, limits: Thresholds) -> ThermalLevel:
    return next(level for level in reversed(_RUNGS) if temperature_c >= limits.entry_c(level))


def _after_unknown(state: LadderState, seen: LadderState, target: ThermalLevel, limits: Thresholds) -> LadderState:
    """The first temperature ever counts at once; one that is back after silence proves coolness for a dwell first."""
    now_ms = seen.last_seen_ms or 0
    if state.last_seen_ms is None or target is not ThermalLevel.NOMINAL:
        return replace(seen, level=target, cool_since_ms=None)
    since = state.cool_since_ms if state.cool_since_ms is not None else now_ms
    if now_ms - since < limits.dwell_ms:
        return replace(seen, cool_since_ms=since)
    return replace(seen, level=target, cool_since_ms=None, fell_ms=now_ms)


def _without_reading(state: LadderState, now_ms: int, limits: Thresholds) -> LadderState:
    dangerous = state.level in (ThermalLevel.HOT, ThermalLevel.CRITICAL)
    last_seen_ms = state.last_seen_ms if state.last_seen_ms is not None else now_ms
    if dangerous and now_ms - last_seen_ms < limits.lost_hold_ms:
        return replace(state, cool_since_ms=None)
    return replace(state, level=ThermalLevel.UNKNOWN, cool_since_ms=None)
