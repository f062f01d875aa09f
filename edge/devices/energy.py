"""Energy counters of processor packages, and what passed between two readings of them; `powercap` reads them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_MAX_WATTS = 2_000.0


@dataclass(frozen=True, slots=True)
class EnergyCounter:
    """One package's counter at one instant, in microjoules. It falls back to zero after `range_uj`."""

    name: str
    energy_uj: int
    range_uj: int


def joules_between(before: Iterable[EnergyCounter], after: Iterable[EnergyCounter], elapsed_s: float) -> float | None:
    """Energy of all packages between two readings; None unless both have the same ones and it is a possible figure."""
    earlier = {counter.name: counter for counter in before}
    later = {counter.name: counter for counter in after}
    if not earlier or earlier.keys() != later.keys() or elapsed_s <= 0:
        return None
    passed_uj = 0
    for name, counter in later.items():
        change_uj = counter.energy_uj - earlier[name].energy_uj
        passed_uj += change_uj if change_uj >= 0 else change_uj + counter.range_uj
    joules = passed_uj / 1e6
    # A counter that was reset by a suspend looks like one that went round.
    return joules if 0 <= joules <= _MAX_WATTS * elapsed_s * len(later) else None
