"""Looks once at the machine: processor, cores that this process may use, memory that it may take, power, libraries."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from edge.devices.caches import Cache, read_caches
from edge.devices.kernel_files import text_of
from edge.devices.power import Power, read_power

# Instruction sets that change how fast the engine's kernels run, by their names in /proc/cpuinfo.
_FEATURES = frozenset(
    {"sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "neon", "asimd",
     "asimddp", "asimdhp", "i8mm", "bf16", "sve", "sve2", "sme", "sme2", "avx512_bf16", "avx512_fp16", "amx_tile",
     "amx_bf16", "avx10_1", "avx512vl", "avx512bw", "avx512dq"}
)  # fmt: skip
_ENGINE_LIBRARY = "libgomp.so.1"


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What the device has. Memory figures hold for this process: a container's limit is respected."""

    machine: str
    cpu_model: str
    cpu_features: frozenset[str]
    cores_total: int
    cores_usable: int
    memory_total_bytes: int
    memory_available_bytes: int
    power: Power
    lockable_bytes: int | None = None
    """Memory that a process may lock (RLIMIT_MEMLOCK); None without a limit."""
    caches: tuple[Cache, ...] = ()
    """Data caches of the first core, from the core outwards; empty where the system does not say."""
    missing_libraries: tuple[str, ...] = field(default=())
    """System libraries that the engine loads and that are not installed."""


def probe(root: Path = Path("/")) -> DeviceFacts:
    """The facts of this machine, with `proc` and `sys` read below `root`."""
    model, features = _processor(root / "proc" / "cpuinfo")
    cores_total = os.cpu_count() or 1
    total, available = _memory(root / "sys" / "fs" / "cgroup")
    return DeviceFacts(
        machine=platform.machine(),
        cpu_model=model,
        cpu_features=features,
        cores_total=cores_total,
        cores_usable=_cores_usable(cores_total, root / "sys" / "fs" / "cgroup"),
        memory_total_bytes=total,
        memory_available_bytes=available,
        power=read_power(root / "sys"),
        lockable_bytes=_lockable_bytes(),
        caches=read_caches(root / "sys"),
        missing_libraries=() if _loads(_ENGINE_LIBRARY) else (_ENGINE_LIBRARY,),
    )


def _processor(cpuinfo: Path) -> tuple[str, frozenset[str]]:
    """Name and relevant features of the first processor; x86 lists `flags`, arm64 `Features`."""
    fields: dict[str, str] = {}
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or "unknown", frozenset()
    for line in lines:
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    words = (fields.get("flags") or fields.get("Features") or "").split()
    return fields.get("model name") or fields.get("Model") or "unknown", frozenset(words) & _FEATURES


def _cores_usable(cores_total: int, cgroup: Path) -> int:
    """Cores by affinity and by the container's quota, at least one."""
    affine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores_total
    quota = (text_of(cgroup / "cpu.max") or "max").split()
    if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit() and int(quota[1]):
        affine = min(affine, int(quota[0]) // int(quota[1]))
    return max(1, affine)


def _memory(cgroup: Path) -> tuple[int, int]:
    """Total and available bytes: the machine's, or the container's (cgroup v2) where that is less."""
    memory = psutil.virtual_memory()
    container = _container(cgroup)
    if container is None:
        return memory.total, memory.available
    return min(memory.total, container[0]), min(memory.available, container[1])


def container_available_bytes(cgroup: Path) -> int | None:
    """What the container at `cgroup` may still take; None where it has no limit."""
    container = _container(cgroup)
    return None if container is None else container[1]


def _container(cgroup: Path) -> tuple[int, int] | None:
    """Limit and available bytes of the container, by cgroup version 2 or 1; None where it has no limit."""
    second = text_of(cgroup / "memory.max") is not None
    folder = cgroup if second else cgroup / "memory"
    limit = text_of(folder / ("memory.max" if second else "memory.limit_in_bytes"))
    used = text_of(folder / ("memory.current" if second else "memory.usage_in_bytes"))
    if not (limit and used and limit.isdigit() and used.isdigit()):
        return None
    cached = _reclaimable_bytes(folder / "memory.stat", "inactive_file" if second else "total_inactive_file")
    return int(limit), max(0, int(limit) - int(used) + cached)


def _reclaimable_bytes(memory_stat: Path, field: str) -> int:
    """Page cache that the container would give back: counted as used, but free to take."""
    for line in (text_of(memory_stat) or "").splitlines():
        name, _, value = line.partition(" ")
        if name == field and value.isdigit():
            return int(value)
    return 0


def _lockable_bytes() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
