"""Turns raw readings of one sensor into one trusted temperature: implausible ones are dropped, spikes are outvoted.

The median of the last three plausible readings follows a true rise within two samples and never moves for one
bogus value. A reading that fails leaves the window as it is; after three in a row the temperature is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import median

WINDOW = 3
MISSES_UNTIL_UNKNOWN = 3
_AMBIGUOUS_BELOW = 1000


@dataclass(frozen=True, slots=True)
class SensorRule:
    """How the sensors whose name fits the shell pattern `match` are read.

    `degrees_per_unit` None is the kernel's convention, thousandths, in which small numbers are refused: they come from
    drivers that count in whole degrees, whose unit cannot be told apart.
    """

    match: str
    use: bool = True
    degrees_per_unit: float | None = None
    offset_c: float = 0.0
    lowest_c: float = -40.0
    highest_c: float = 150.0

    def fits(self, kind: str, name: str) -> bool:
        """Whether it speaks of the sensor: by its type (`coretemp`) or its full name (`coretemp/Core 0`)."""
        return fnmatchcase(kind, self.match) or fnmatchcase(name, self.match)


ANY_SENSOR = SensorRule("*")


def plausible_c(raw: float, rule: SensorRule = ANY_SENSOR) -> float | None:
    """Degrees Celsius of a raw reading, or None for one that no running processor shows.

    Drivers report -273150, 0 and values far outside of any die's range for sensors that are absent or asleep.
    """
    if rule.degrees_per_unit is None and abs(raw) < _AMBIGUOUS_BELOW:
        return None
    celsius = raw * (0.001 if rule.degrees_per_unit is None else rule.degrees_per_unit) + rule.offset_c
    return round(celsius, 4) if rule.lowest_c <= celsius <= rule.highest_c else None


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
        if not self.values:
            return False  # a sensor that says nothing need not be asked more often for it
        return self.misses > 0 or len(self.values) < WINDOW or max(self.values) - min(self.values) > 2.0
