"""Models of devices: how fast they are, how hot they get, what their battery gives, how their network behaves.

One row a device, in arrays. Heat is one body with one resistance and one capacity, as in `shared.testing.heat`:
dT/dt = (air + rise * watts / busy watts - T) / tau. The ladder's thresholds are the agent's defaults.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

WARM_C, HOT_C, CRITICAL_C = 75.0, 85.0, 95.0
HYSTERESIS_C = 5.0
"""As `edge.settings.ThermalSettings` has them; a test holds them together."""
NOMINAL, WARM, HOT, CRITICAL, UNKNOWN = range(5)
SPEED_AT_LEVEL = np.array([1.0, 0.9, 0.6, 0.3, 1.0])
"""A device that does not know its temperature is routed to as if it were warm, and as fast as it is."""
_LOW_BATTERY_RATIO = 0.15
"""Below this share of its charge a device that is not on mains takes no more work: the agent calls that critical."""


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """One kind of device. Speeds are tokens a second of a small quantised model on an idle, cool device."""

    name: str
    share: float
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    slots: int
    idle_w: float
    busy_w: float
    rise_c: float
    """How much warmer than the air it gets at full load, in the end."""
    tau_s: float
    battery_wh: float
    """0: on mains always."""
    network_ms: float
    """Median round trip to the cloud."""
    loss_ratio: float
    """Share of requests to the cloud whose connection fails at the first attempt."""
    base_ms: float = 0.0
    """To the first token of an empty prompt."""
    senses: bool = True
    """Whether it knows its temperature."""


CLASSES = (
    DeviceClass("laptop", 0.45, 400, 60, 2, 6, 28, 52, 240, 56, 35, 0.002),
    DeviceClass("phone", 0.25, 120, 20, 1, 0.8, 5.5, 40, 150, 16, 65, 0.01),
    DeviceClass("small board", 0.20, 60, 9, 1, 2.5, 8, 48, 200, 0, 25, 0.001),
    DeviceClass("accelerator board", 0.10, 900, 95, 4, 7, 38, 50, 300, 0, 20, 0.001),
)
"""Assumed round figures of devices that run models of 0.1 to 3 billion parameters, none of them measured."""


@dataclass(slots=True)
class Fleet:
    """All devices at one moment."""

    kind: Ints
    prefill_tokens_per_s: Floats
    decode_tokens_per_s: Floats
    slots: Ints
    celsius: Floats
    level: Ints
    charge_wh: Floats
    battery_wh: Floats
    idle_w: Floats
    busy_w: Floats
    rise_c: Floats
    tau_s: Floats
    home_air_c: Floats
    network_ms: Floats
    loss_ratio: Floats
    base_ms: Floats
    senses: Flags
    plugged_from_h: Floats
    """Hour of the day at which the device is put on mains for the night."""
    throttle_events: int = 0

    @property
    def size(self) -> int:
        """Devices."""
        return len(self.kind)


def new_fleet(
    size: int, classes: tuple[DeviceClass, ...], dice: np.random.Generator, *, spread_ratio: float = 0.15
) -> Fleet:
    """`size` devices of the classes in their shares, each a little faster or slower than the next, by a standard
    deviation of `spread_ratio`."""
    shares = np.array([each.share for each in classes])
    kind = dice.choice(len(classes), size=size, p=shares / shares.sum())

    def of(name: str, spread: float = spread_ratio) -> Floats:
        values = np.array([getattr(each, name) for each in classes], dtype=np.float64)[kind]
        return values * np.clip(dice.normal(1.0, spread, size), 0.5, 1.5) if spread else values

    pace = np.clip(dice.normal(1.0, spread_ratio, size), 0.5, 1.5)
    slots = np.array([each.slots for each in classes])[kind]
    senses = np.array([each.senses for each in classes])[kind]
    battery = of("battery_wh")
    air = dice.normal(23.0, 4.0, size)
    return Fleet(
        kind=kind.astype(np.int64),
        prefill_tokens_per_s=np.round(of("prefill_tokens_per_s", 0.0) * pace),
        decode_tokens_per_s=np.round(of("decode_tokens_per_s", 0.0) * pace),
        slots=slots.astype(np.int64),
        celsius=air + 12.0,
        level=np.where(senses, NOMINAL, UNKNOWN),
        charge_wh=battery * dice.uniform(0.6, 1.0, size),
        battery_wh=battery,
        idle_w=of("idle_w"),
        busy_w=of("busy_w"),
        rise_c=of("rise_c"),
        tau_s=of("tau_s", 0.0),
        home_air_c=air,
        network_ms=of("network_ms", 2 * spread_ratio),
        loss_ratio=of("loss_ratio", 0.0),
        base_ms=of("base_ms", 0.0),
        senses=senses,
        plugged_from_h=dice.normal(22.0, 1.5, size) % 24.0,
    )


def step(fleet: Fleet, worked_s: Floats, from_s: float, dt_s: float) -> Floats:
    """Let `dt_s` seconds pass in which each device computed for `worked_s`; joules spent on that work.

    Temperatures, levels and charges move on. A device is on mains from its own evening hour for nine hours.
    """
    load = np.minimum(1.0, worked_s / (dt_s * fleet.slots))
    hour = from_s / 3600 % 24
    outside = 6.0 * np.sin((hour - 9.0) / 24 * 2 * np.pi)
    rest_c = fleet.home_air_c + outside + 12.0 + fleet.rise_c * load
    fleet.celsius = rest_c + (fleet.celsius - rest_c) * np.exp(-dt_s / fleet.tau_s)
    before = fleet.level
    fleet.level = _levels(fleet)
    fleet.throttle_events += int(((fleet.level > before) & (fleet.level >= HOT) & fleet.senses).sum())
    extra_w: Floats = (fleet.busy_w - fleet.idle_w) * load
    on_mains = (fleet.battery_wh == 0) | ((hour - fleet.plugged_from_h) % 24 < 9.0)
    drawn_wh = (fleet.idle_w * 0.2 + extra_w) * dt_s / 3600
    charged_wh = fleet.battery_wh / 2 * dt_s / 3600  # two hours to full
    fleet.charge_wh = np.clip(fleet.charge_wh + np.where(on_mains, charged_wh, -drawn_wh), 0.0, fleet.battery_wh)
    empty = ~on_mains & (fleet.charge_wh < _LOW_BATTERY_RATIO * fleet.battery_wh)
    fleet.level = np.where(empty, CRITICAL, fleet.level)
    joules: Floats = extra_w * dt_s
    return joules


def _levels(fleet: Fleet) -> Ints:
    """The ladder: up at each threshold, down only `HYSTERESIS_C` below it."""
    bounds = np.array([WARM_C, HOT_C, CRITICAL_C])
    up = (fleet.celsius[:, None] >= bounds).sum(axis=1)
    down = (fleet.celsius[:, None] >= bounds - HYSTERESIS_C).sum(axis=1)
    level = np.where(up > fleet.level, up, np.minimum(fleet.level, down))
    return np.where(fleet.senses, level, UNKNOWN).astype(np.int64)
