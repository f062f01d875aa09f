"""Compares the ways to bring weights into memory: what stays resident, how long start and first token wait.

The first token reads every weight once, so it waits for whatever is not resident by then. Costs follow from two figures
of the storage: bytes per second of a long read, and the time of one request, which a page fault pays for each
read-ahead window (Linux: `read_ahead_kb`, 128 by default).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from edge.memory.capacity import MIB


class Loading(StrEnum):
    """How weights come into memory."""

    MMAP = "mmap"
    LOCK = "lock"
    PRELOAD = "preload"
    PREFETCH = "prefetch"


@dataclass(frozen=True, slots=True)
class Storage:
    """Where the model file lies."""

    read_bytes_per_s: float
    request_s: float
    readahead_bytes: int = 128 << 10


@dataclass(frozen=True, slots=True)
class LoadingRow:
    """One way, from a cold page cache. `first_token_s` is what the first token waits on top of its computation."""

    loading: Loading
    start_s: float
    """What passes before the engine serves."""
    first_token_s: float
    resident_bytes: int
    """File pages that must be in memory when serving begins."""
    evictable: bool
    """Whether the kernel may take the pages back when memory runs short."""
    shared: bool
    """Whether a second process on the same file (a swap) adds nothing."""
    needs_bytes: int
    """Locked memory that the process must be allowed (RLIMIT_MEMLOCK)."""


def loading_table(
    weights_bytes: int, storage: Storage, *, token_s: float, window_bytes: int = 16 * MIB
) -> tuple[LoadingRow, ...]:
    """A row for each way. `token_s` is the time of a token from memory; `window_bytes` are read ahead of its need."""
    sequential_s = weights_bytes / storage.read_bytes_per_s
    faults = -(-weights_bytes // storage.readahead_bytes)
    faulting_s = sequential_s + faults * storage.request_s
    window = min(window_bytes, weights_bytes)
    # Reading runs beside computing; the first window has nothing to run beside.
    windows = -(-weights_bytes // window) if window else 0
    reading_s = sequential_s + windows * storage.request_s
    first_window_s = window / storage.read_bytes_per_s + storage.request_s
    rest_s = max(0.0, reading_s - first_window_s - token_s)
    return (
        LoadingRow(Loading.MMAP, 0.0, faulting_s, 0, evictable=True, shared=True, needs_bytes=0),
        LoadingRow(
            Loading.LOCK, faulting_s, 0.0, weights_bytes, evictable=False, shared=True, needs_bytes=weights_bytes
        ),
        LoadingRow(Loading.PRELOAD, reading_s, 0.0, weights_bytes, evictable=True, shared=True, needs_bytes=0),
        LoadingRow(Loading.PREFETCH, first_window_s, rest_s, window, evictable=True, shared=True, needs_bytes=0),
    )
