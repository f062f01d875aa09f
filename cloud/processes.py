"""Finds and ends every process of one cloud run, also those that left its process group or lost their parent.

Ray and vLLM start processes in groups of their own. All of them inherit the environment of the driver, and with it
the mark of the run; so a run can be ended whole, and the rest of one that was killed is found by the next.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

MARK = "ISTHMUS_CLOUD_RUN_ID"
_PROC = Path("/proc")
_SWEEPS = 60
_PAUSE_S = 0.1


def marked(run_id: str) -> list[int]:
    """Ids of living processes that carry the mark of `run_id`, without this one."""
    mark = f"{MARK}={run_id}".encode()
    return [pid for pid in _pids() if pid != os.getpid() and _carries(pid, mark)]


def sweep(run_id: str) -> int:
    """Kill what carries the mark until nothing does; return how many processes were killed.

    Repeated, because a process may start another while the list is read; bounded, because one that waits in the
    kernel cannot be killed before its device answers.
    """
    killed: set[int] = set()
    for _ in range(_SWEEPS):
        alive = marked(run_id)
        if not alive:
            break
        for pid in alive:
            killed.add(pid)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(_PAUSE_S)
    return len(killed)


def _pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]


def _carries(pid: int, mark: bytes) -> bool:
    try:
        if mark not in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            return False
        # The state stands after the name, which is in brackets and may hold anything.
        state = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:  # ended meanwhile, or another user's
        return False
    return state not in (b"Z", b"X")
