"""The names of what can happen to a simulated device; see `shared.testing.heat` for what they do."""

from __future__ import annotations

from enum import StrEnum


class Scenario(StrEnum):
    """What happens around the device."""

    RAMP = "ramp"
    HOT_DAY = "hot-day"
    SPIKE = "spike"
    FLAPPING = "flapping"
