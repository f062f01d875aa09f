"""Builds the loops that watch memory and speculation from what the settings say."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from edge.devices.pressure import read_pressure
from edge.memory.pressure import PressureRules
from edge.runtime.port import Engine
from edge.scheduling.speculation import SpeculationMode, SpeculationPolicy
from edge.service.admission import Admission
from edge.service.memory_watch import MemoryWatch
from edge.service.speculation_watch import SpeculationWatch
from edge.service.thermal.watch import ThermalWatch
from edge.service.wait import Work
from edge.settings import MemorySettings
from edge.speed_settings import SpeculationSettings
from shared.clock import Clock
from shared.fleet import ThermalLevel

_SPECULATION_INTERVAL_S = 2.0
_RETRY_LIMIT_MS = 8 * 3600 * 1000
_SWAP = Work("swap", is_promised=True)
"""Heat asks for it when the line is full, or nothing new is taken any more."""


def memory_watch(settings: MemorySettings, engine: Engine, clock: Clock, on_change: Callable[[], None]) -> MemoryWatch:
    """What the engine gives back when the device runs short."""
    rules = PressureRules(
        low_bytes=settings.low,
        critical_bytes=settings.critical,
        hysteresis_bytes=settings.hysteresis,
        some_stall_percent=settings.stall_percent,
        full_stall_percent=settings.stall_percent,
        settle_ms=round(settings.settle_s * 1000),
        dwell_ms=round(settings.dwell_s * 1000),
    )
    read = partial(read_pressure, settings.root)
    return MemoryWatch(read, engine, rules, clock=clock, interval_s=settings.interval_s, on_change=on_change)


def speculation_watch(
    settings: SpeculationSettings,
    engine: Engine,
    thermal: ThermalWatch,
    memory: MemoryWatch,
    admission: Admission,
    clock: Clock,
    on_change: Callable[[], None],
) -> SpeculationWatch:
    """Whether the engine proposes several tokens at a time."""
    draft = engine.drafting
    policy = SpeculationPolicy(
        candidates=(
            *((SpeculationMode.DRAFT,) if draft is not None and draft.mismatch is None else ()),
            *SpeculationPolicy().candidates,
            *((SpeculationMode.NGRAM_MOD,) if settings.shared_memory else ()),
        ),
        margin_ratio=settings.margin_ratio,
        dwell_ms=round(settings.dwell_s * 1000),
        retry_ms=round(settings.retry_s * 1000),
        retry_limit_ms=max(_RETRY_LIMIT_MS, round(settings.retry_s * 1000)),
    )
    return SpeculationWatch(
        engine,
        policy,
        clock=clock,
        level=lambda: thermal.level if not thermal.measures.speculation else ThermalLevel.NOMINAL,
        has_room=lambda: memory.has_room,
        alone=lambda: admission.slot(admission.slots, work=_SWAP),
        interval_s=min(_SPECULATION_INTERVAL_S, settings.dwell_s),
        on_change=on_change,
    )
