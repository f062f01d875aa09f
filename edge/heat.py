"""Builds the thermal watch that the settings describe."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from edge.devices.host_sensors import HostSensors
from edge.service.thermal import sensors
from edge.service.thermal.ladder import Measures, Table, Thresholds
from edge.service.thermal.panel import StuckRule
from edge.service.thermal.power import BatteryRules
from edge.service.thermal.readings import SensorRule
from edge.service.thermal.watch import Rules, ThermalWatch
from edge.settings import LevelSettings, LevelsSettings, ThermalSettings
from shared.clock import Clock
from shared.fleet import ThermalLevel

_THIS_MACHINE = Path("/sys")


def thermal_watch(
    settings: ThermalSettings, clock: Clock, *, busy_ratio: Callable[[], float], on_change: Callable[[], None]
) -> ThermalWatch:
    """A watch over the trees of `settings`, and over this machine's libraries where its own tree is one of them."""
    libraries = settings.libraries if _THIS_MACHINE in settings.roots else ()
    read = partial(sensors.read, settings.roots, sensor_rules(settings), HostSensors(libraries))
    return ThermalWatch(read, rules_of(settings), clock=clock, busy_ratio=busy_ratio, on_change=on_change)


def rules_of(settings: ThermalSettings) -> Rules:
    """What the loop decides by."""
    scale = settings.time_scale
    return Rules(
        thresholds=Thresholds(
            warm_c=settings.warm_c,
            hot_c=settings.hot_c,
            critical_c=settings.critical_c,
            hysteresis_c=settings.hysteresis_c,
            dwell_ms=round(settings.scaled_dwell_s * 1000),
            lost_hold_ms=round(settings.lost_hold_s * 1000 / scale),
        ),
        table=table_of(settings.levels),
        battery=BatteryRules(
            low_percent=settings.battery_low_percent,
            critical_percent=settings.battery_critical_percent,
            empty_percent=settings.battery_empty_percent,
        ),
        stuck=StuckRule(busy_ms=round(settings.stuck_busy_s * 1000 / scale), below_c=settings.warm_c),
        interval_s=settings.interval_s / scale,
        forecast_period_s=settings.forecast_period_s / scale,
        cooled=settings.cooled,
    )


def sensor_rules(settings: ThermalSettings) -> tuple[SensorRule, ...]:
    """What is said of single sensors, then the patterns of those that do not count."""
    said = (SensorRule(**each.model_dump()) for each in settings.sensors)
    return (*said, *(SensorRule(pattern, use=False) for pattern in settings.ignore))


def table_of(levels: LevelsSettings) -> Table:
    """The measures of each level."""
    return {
        ThermalLevel.NOMINAL: Measures(),
        ThermalLevel.WARM: _measures(levels.warm),
        ThermalLevel.HOT: _measures(levels.hot),
        ThermalLevel.CRITICAL: _measures(levels.critical),
    }


def _measures(level: LevelSettings) -> Measures:
    return Measures(
        speculation=level.speculation,
        threads_ratio=level.threads_ratio,
        slot_limit=level.slots,
        output_cap_tokens=level.output_cap_tokens,
        admits=level.admits,
        derate_ratio=level.derate_ratio,
    )
