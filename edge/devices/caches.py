"""Reads the sizes of the processor's caches from a sysfs-shaped tree."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_SIZE = re.compile(r"([0-9]+)([KMG]?)")
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
        level, size = _text(index / "level"), _SIZE.fullmatch(_text(index / "size"))
        if _text(index / "type") in ("Data", "Unified") and level.isdigit() and size and int(size[1]):
            found.append(Cache(int(level), int(size[1]) * _UNITS[size[2]], _cores(_text(index / "shared_cpu_list"))))
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


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
