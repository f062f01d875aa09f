"""Checks the machine: interpreter, native library, compiler, memory, disk, settings, ports, Redis, model store."""

from __future__ import annotations

import ctypes
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import psutil

from shared.doctor.finding import Finding, Verdict
from shared.errors import SettingsError
from shared.http.binding import bind
from shared.launcher.preflight import COMPILERS, SOCKET_NAME, is_prepared
from shared.launcher.settings import UpSettings, wiring_of
from shared.launcher.tiers import TIERS
from shared.settings import SECTION_GROUP, home, load

_GIB = 1024**3
_PYTHONS = ((3, 11), (3, 12))
_MEMORY_BYTES = {"edge": _GIB, "cloud": 6 * _GIB}
"""Available memory that a tier with the default model takes, with some room (measured: 0.4 and 4.9 GB)."""


def check(installed: frozenset[str], config: Path | None) -> Iterator[Finding]:
    """Findings about the machine; `installed` decides what is missing and what is only worth a note."""
    yield _python()
    if "edge" in installed:
        yield _openmp()
    if "cloud" in installed:
        yield _compiler()
    for tier, needed_bytes in _MEMORY_BYTES.items():
        if tier in installed:
            yield _memory(tier, needed_bytes)
    yield from _disk(installed)
    yield from _settings(installed, config)
    yield from _ports(installed, config)
    yield _redis()
    yield from _stores(installed, config)


def _python() -> Finding:
    version = platform.python_version_tuple()
    if (int(version[0]), int(version[1])) in _PYTHONS:
        return Finding("shared", "Python", Verdict.OK, platform.python_version())
    return Finding("shared", "Python", Verdict.MISSING, platform.python_version(), "Use Python 3.11 or 3.12")


def _openmp() -> Finding:
    """llama.cpp's wheel links the system's OpenMP runtime and does not bundle it."""
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        advice = "Install it (Debian: apt install libgomp1)"
        return Finding("edge", "libgomp.so.1", Verdict.MISSING, "absent", advice)
    return Finding("edge", "libgomp.so.1", Verdict.OK, "present")


def _compiler() -> Finding:
    found = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    if found:
        return Finding("cloud", "C++ compiler", Verdict.OK, found)
    return Finding("cloud", "C++ compiler", Verdict.MISSING, "absent", "Install one (Debian: apt install g++)")


def _memory(tier: str, needed_bytes: int) -> Finding:
    available_bytes = psutil.virtual_memory().available
    found = f"{available_bytes / _GIB:.1f} GiB available"
    if available_bytes >= needed_bytes:
        return Finding(tier, "memory", Verdict.OK, found)
    advice = f"The default model needs about {needed_bytes / _GIB:.0f} GiB: end other programs or take a smaller model"
    return Finding(tier, "memory", Verdict.NOTE, found, advice)


def _disk(installed: frozenset[str]) -> Iterator[Finding]:
    folder = next(parent for parent in (home(), *home().parents) if parent.exists())
    free_bytes = shutil.disk_usage(folder).free
    needed_bytes = sum(tier.first_start_bytes for tier in TIERS.values() if tier.name in installed)
    found = f"{free_bytes / _GIB:.1f} GiB free at {folder}"
    if free_bytes >= needed_bytes:
        yield Finding("shared", "disk", Verdict.OK, found)
    else:
        advice = f"A first start takes {needed_bytes / _GIB:.1f} GiB: free some, or set ISTHMUS_HOME to another disk"
        yield Finding("shared", "disk", Verdict.NOTE, found, advice)


def _settings(installed: frozenset[str], config: Path | None) -> Iterator[Finding]:
    """Whether each section of the settings file, and the environment over it, would be taken."""
    for point in sorted(entry_points(group=SECTION_GROUP), key=lambda each: each.name):
        if point.name in TIERS and point.name not in installed:
            continue
        try:
            load(point.load(), point.name, config)
        except SettingsError as error:
            yield Finding(point.name, "settings", Verdict.MISSING, "refused", error.message)
        except ImportError:  # its packages are not installed, which is a finding of its own
            continue
        else:
            yield Finding(point.name, "settings", Verdict.OK, "good")


def _ports(installed: frozenset[str], config: Path | None) -> Iterator[Finding]:
    running = (load(UpSettings, "up", config).folder / SOCKET_NAME).exists()
    for name, address in wiring_of(("edge", "cloud"), config, sensors=Path("/")).addresses.items():
        if name not in installed:
            continue
        subject = f"port {address.port}"
        try:
            bind(address.host, address.port, setting=f"{name}.port").close()
        except SettingsError as error:
            advice = "isthmus up seems to run" if running else error.message
            yield Finding(name, subject, Verdict.NOTE, "in use", advice)
        else:
            yield Finding(name, subject, Verdict.OK, "free")


def _redis() -> Finding:
    found = shutil.which("redis-server")
    if found:
        return Finding("shared", "redis-server", Verdict.OK, found)
    advice = "Only a fleet with several routers needs one (Debian: apt install redis-server)"
    return Finding("shared", "redis-server", Verdict.NOTE, "absent", advice)


def _stores(installed: frozenset[str], config: Path | None) -> Iterator[Finding]:
    wiring = wiring_of(("edge", "cloud"), config, sensors=Path("/"))
    for tier in TIERS.values():
        if tier.name not in installed or tier.name not in wiring.stores:
            continue
        if is_prepared(tier, wiring):
            yield Finding(tier.name, "model", Verdict.OK, str(wiring.stores[tier.name]))
        else:
            command = " ".join(tier.prepare[0][1])
            yield Finding(tier.name, "model", Verdict.NOTE, "absent", f"Made by isthmus up, or isthmus {command}")
