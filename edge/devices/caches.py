"""Reads the sizes of the processor's caches from a sysfs-shaped tree."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from edge.devices.kernel_files import text_of

_SIZE = re.compile(r"([0-9]+)([KMG]?)")
_FILES = ("level", "type", "size", "shared_cpu_list")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True)
class Cache:
    """One data cache as the first core sees it. `cores` share it; None where the tree does not say."""

    level: int
    size_bytes: int
    cores: int | None = None


def read_caches(sysfs: Path) -> tuple[Cache, ...]:
    """Data and unified caches of the first processor, from the core outwards; empty where nothing can be read."""
    found = []
    for index in sorted((sysfs / "devices" / "system" / "cpu" / "cpu0" / "cache").glob("index[0-9]*")):
        level, kind, size, cores = (text_of(index / name) or "" for name in _FILES)
        amount = _SIZE.fullmatch(size)
        if kind in ("Data", "Unified") and level.isdigit() and amount and int(amount[1]):
            found.append(Cache(int(level), int(amount[1]) * _UNITS[amount[2]], _cores(cores)))
    return tuple(sorted(found, key=lambda cache: cache.level))


def _cores(shared: str) -> int | None:
    """How many processors a list such as `0-3,8` names."""
    count = 0
    for part in shared.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            return None
        count += int(last or first) - int(first) + 1
    return count
