"""Turns raw readings into one trusted temperature: implausible ones are dropped, spikes are outvoted.

The median of the last three plausible readings follows a true rise within two samples and never moves for one
bogus value. A reading that fails leaves the window as it is; after three in a row the temperature is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

WINDOW = 3
MISSES_UNTIL_UNKNOWN = 3
_LOWEST_C = -40.0
_HIGHEST_C = 150.0


def plausible_c(millidegrees: int) -> float | None:
    """Degrees Celsius of a sysfs reading in thousandths, or None for one that no running processor shows.

    Drivers report -273150, 0 and values far outside of any die's range for sensors that are absent or asleep;
    values under one degree are drivers that count in whole degrees, whose unit cannot be told apart.
    """
    if abs(millidegrees) < 1000:
        return None
    celsius = millidegrees / 1000
    return celsius if _LOWEST_C <= celsius <= _HIGHEST_C else None


def hottest_c(readings: Iterable[float | None]) -> float | None:
    """The highest known temperature; None when no sensor has one."""
    return max((value for value in readings if value is not None), default=None)


@dataclass(frozen=True, slots=True)
class Window:
    """The last plausible readings, newest last, and how many readings failed since."""

    values: tuple[float, ...] = ()
    misses: int = 0

    def after(self, celsius: float | None) -> Window:
        """The window after one more reading; None is one that failed."""
        if celsius is not None:
            return Window((*self.values, celsius)[-WINDOW:])
        misses = self.misses + 1
        return Window(() if misses >= MISSES_UNTIL_UNKNOWN else self.values, misses)

    @property
    def temperature_c(self) -> float | None:
        """The trusted temperature; None until the window is full, and when the sensor has gone silent."""
        return median(self.values) if len(self.values) == WINDOW else None

    @property
    def unsettled(self) -> bool:
        """Whether the next reading should come soon: the window fills, a reading failed, or it moves."""
        return self.misses > 0 or len(self.values) < WINDOW or max(self.values) - min(self.values) > 2.0
