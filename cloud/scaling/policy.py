"""Decides how many replicas of a model shall run, from the requests it holds and how full its KV caches are. Pure.

Up: as soon as one replica would hold more requests than its target, or more of its cache than the ceiling, for
`up_delay_s` without a break. Down: only where what is left would stay below both by a margin, for `down_delay_s`;
the margin keeps a load that stands near a boundary from adding and removing the same replica for ever.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

KV_CEILING_RATIO = 0.85
"""Above this share of the cache vLLM soon preempts sequences, and computes them again."""
SLACK_RATIO = 0.8
"""What remains after a step down may be at most this share of target and ceiling."""
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Goals:
    """What each replica shall hold at most, and how long a wish must last."""

    target_requests: float
    """Requests, running and queued, for each replica."""
    min_replicas: int
    max_replicas: int
    up_delay_s: float
    down_delay_s: float
    to_zero_delay_s: float
    kv_ceiling_ratio: float = KV_CEILING_RATIO
    slack_ratio: float = SLACK_RATIO


@dataclass(frozen=True, slots=True)
class Pressure:
    """What is seen of one model now."""

    replicas: int
    """Replicas that are wanted already."""
    requests: float
    """Requests that run or wait, in replicas and before them."""
    kv_use_ratios: tuple[float, ...] = ()
    """Share of its cache that each running replica uses; what is not known is left out."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A wish that has lasted since `since_s`: `direction` is 1 for more, -1 for fewer, 0 for none."""

    direction: int = 0
    since_s: float = 0.0


def decide(pressure: Pressure, goals: Goals, wish: Wish, now_s: float) -> tuple[int, Wish]:
    """Replicas from `now_s` on, and the wish to bring next time. Times are of one clock, in seconds."""
    wanted = desired(pressure, goals)
    direction = (wanted > pressure.replicas) - (wanted < pressure.replicas)
    if direction == 0:
        return pressure.replicas, Wish()
    since_s = wish.since_s if wish.direction == direction else now_s
    if now_s - since_s + _TOLERANCE < _delay_s(pressure, goals, wanted):
        return pressure.replicas, Wish(direction, since_s)
    return wanted, Wish()


def desired(pressure: Pressure, goals: Goals) -> int:
    """Replicas that the present load asks for, within bounds; the present number where no margin allows fewer."""
    if pressure.requests <= 0 and not any(pressure.kv_use_ratios):
        # The last one leaves by itself: from many to none at once would be a guess about an instant.
        return _bounded(0 if pressure.replicas <= 1 else 1, goals)
    needed = max(1, _needed(pressure, goals, 1.0))
    if needed >= pressure.replicas:
        return _bounded(needed, goals)
    return _bounded(min(pressure.replicas, max(1, _needed(pressure, goals, goals.slack_ratio))), goals)


def _needed(pressure: Pressure, goals: Goals, share: float) -> int:
    """Replicas over which requests and cache spread to at most `share` of target and ceiling."""
    by_requests = pressure.requests / (goals.target_requests * share)
    by_cache = sum(pressure.kv_use_ratios) / (goals.kv_ceiling_ratio * share)
    return math.ceil(max(by_requests, by_cache) - _TOLERANCE)


def _bounded(wanted: int, goals: Goals) -> int:
    return min(max(wanted, goals.min_replicas), goals.max_replicas)


def _delay_s(pressure: Pressure, goals: Goals, wanted: int) -> float:
    if wanted > pressure.replicas:
        return 0.0 if pressure.replicas == 0 else goals.up_delay_s  # somebody waits before a closed door
    return goals.to_zero_delay_s if wanted == 0 else goals.down_delay_s
