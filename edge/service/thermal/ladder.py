"""Decides the thermal level from filtered temperatures, and what each level takes away.

Up at once, down slowly: a threshold that is passed raises the level with that sample; a level is left one rung at a
time, after the temperature has stayed below the threshold minus the hysteresis for the dwell time. A sensor that
goes silent makes the level `unknown`, which is handled as `warm`; a device that was hot or critical then stays so for
a holding time, because silence is no sign of cooling. Battery raises the level, never lowers it.
"""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class LadderState:
    """Level in force and what the next step has to remember (monotonic milliseconds)."""

    level: ThermalLevel = ThermalLevel.UNKNOWN
    cool_since_ms: int | None = None
    """Since when the temperature allows a lower level without interruption."""
    last_seen_ms: int | None = None
    """When a temperature was last known."""


@dataclass(frozen=True, slots=True)
class Measures:
    """What a level takes away. None means no limit of its own."""

    speculation: bool
    slot_limit: int | None
    output_cap_tokens: int | None
    admits: bool
    derate_ratio: float


def step(state: LadderState, temperature_c: float | None, now_ms: int, limits: Thresholds) -> LadderState:
    """The state after one filtered reading; None is a reading that failed."""
    if temperature_c is None:
        return _without_reading(state, now_ms, limits)
    seen = replace(state, last_seen_ms=now_ms)
    target = _entered(temperature_c, limits)
    if state.level is ThermalLevel.UNKNOWN:
        return replace(seen, level=target, cool_since_ms=None)
    if _SEVERITY[target] > _SEVERITY[state.level]:
        return replace(seen, level=target, cool_since_ms=None)
    if temperature_c >= limits.entry_c(state.level) - limits.hysteresis_c:
        return replace(seen, cool_since_ms=None)
    since = state.cool_since_ms if state.cool_since_ms is not None else now_ms
    if now_ms - since < limits.dwell_ms:
        return replace(seen, cool_since_ms=since)
    # The next rung needs a dwell of its own, which starts now.
    return replace(seen, level=_RUNGS[_SEVERITY[state.level] - 1], cool_since_ms=now_ms)


def with_floor(level: ThermalLevel, floor: ThermalLevel | None) -> ThermalLevel:
    """The severer of a level and a floor from elsewhere (battery)."""
    return floor if floor is not None and _SEVERITY[floor] > _SEVERITY[level] else level


def measures(level: ThermalLevel, *, hot_output_cap_tokens: int) -> Measures:
    """What is in force on `level`. The derate ratios are upper bounds on the speed left, used only to compare tiers."""
    return {
        ThermalLevel.NOMINAL: Measures(True, None, None, admits=True, derate_ratio=1.0),
        ThermalLevel.WARM: Measures(False, None, None, admits=True, derate_ratio=0.9),
        ThermalLevel.UNKNOWN: Measures(False, None, None, admits=True, derate_ratio=0.9),
        ThermalLevel.HOT: Measures(False, 1, hot_output_cap_tokens, admits=True, derate_ratio=0.6),
        ThermalLevel.CRITICAL: Measures(False, 1, hot_output_cap_tokens, admits=False, derate_ratio=0.3),
    }[level]


def _entered(temperature_c: float, limits: Thresholds) -> ThermalLevel:
    return next(level for level in reversed(_RUNGS) if temperature_c >= limits.entry_c(level))


def _without_reading(state: LadderState, now_ms: int, limits: Thresholds) -> LadderState:
    dangerous = state.level in (ThermalLevel.HOT, ThermalLevel.CRITICAL)
    last_seen_ms = state.last_seen_ms if state.last_seen_ms is not None else now_ms
    if dangerous and now_ms - last_seen_ms < limits.lost_hold_ms:
        return replace(state, cool_since_ms=None)
    return replace(state, level=ThermalLevel.UNKNOWN, cool_since_ms=None)
