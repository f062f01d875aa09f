"""Reads how short of memory this device is, from a tree shaped like the root of a Linux system.

`proc/meminfo` gives what can be had without swapping, `proc/pressure/memory` the shares of time that tasks stalled for
memory (PSI). Inside a container with a limit (cgroup v2) its own figures count where they are worse. What cannot be
read is None, never zero.
"""

from __future__ import annotations

import re
from pathlib import Path

from edge.devices.kernel_files import text_of
from edge.devices.probe import container_available_bytes
from edge.memory.pressure import Pressure

_STALL = re.compile(r"^(some|full) avg10=([0-9]+(?:\.[0-9]+)?) ", re.MULTILINE)
_AVAILABLE = re.compile(r"^MemAvailable:\s+([0-9]+) kB$", re.MULTILINE)


def read_pressure(root: Path) -> Pressure:
    """One reading below `root`."""
    cgroup = root / "sys" / "fs" / "cgroup"
    machine = _stalls(root / "proc" / "pressure" / "memory")
    container = _stalls(cgroup / "memory.pressure")
    return Pressure(
        available_bytes=_least(_meminfo(root / "proc" / "meminfo"), container_available_bytes(cgroup)),
        some_stall_percent=_most(machine.get("some"), container.get("some")),
        full_stall_percent=_most(machine.get("full"), container.get("full")),
    )


def _meminfo(path: Path) -> int | None:
    found = _AVAILABLE.search(text_of(path) or "")
    return int(found[1]) * 1024 if found else None


def _stalls(path: Path) -> dict[str, float]:
    return {kind: float(share) for kind, share in _STALL.findall(text_of(path) or "")}


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _most(*values: float | None) -> float | None:
    return max((value for value in values if value is not None), default=None)
