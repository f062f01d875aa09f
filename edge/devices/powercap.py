"""Reads the energy counters of processor packages (RAPL) from a sysfs-shaped tree.

    {root}/class/powercap/intel-rapl:N/{energy_uj,max_energy_range_uj}      Documentation/power/powercap/powercap.rst

AMD processors appear under the same names. Only whole packages count: their parts (core, uncore, dram below
`intel-rapl:N:M`) are in them or beside the engine's share. The counters can be read by root alone on most systems;
where they cannot, energy is not known.
"""

from __future__ import annotations

import re
from pathlib import Path

from edge.devices.energy import EnergyCounter
from edge.devices.kernel_files import text_of

_PACKAGE = re.compile(r"intel-rapl(-mmio)?:[0-9]+\Z")


def read_energy(sysfs: Path) -> tuple[EnergyCounter, ...]:
    """The packages' counters below `sysfs`; those that cannot be read are absent."""
    try:
        zones = sorted((sysfs / "class" / "powercap").iterdir())
    except OSError:
        return ()
    # The same package appears a second time through memory-mapped registers.
    packages = [zone for zone in zones if _PACKAGE.match(zone.name)]
    direct = [zone for zone in packages if "mmio" not in zone.name]
    counters = (_counter(sysfs, zone) for zone in direct or packages)
    return tuple(counter for counter in counters if counter is not None)


def _counter(sysfs: Path, zone: Path) -> EnergyCounter | None:
    energy, limit = _number(zone / "energy_uj"), _number(zone / "max_energy_range_uj")
    if energy is None or limit is None or energy > limit:
        return None
    return EnergyCounter(f"{sysfs}:{zone.name}", energy, limit)


def _number(path: Path) -> int | None:
    text = text_of(path) or ""
    return int(text) if text.isdigit() and len(text) < 20 else None
