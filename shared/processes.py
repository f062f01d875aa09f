"""Finds and ends every process of a run, also those that left their process group or lost their parent.

Ray and vLLM start processes in groups of their own, so a group signal is not enough. Three traces lead to them, and
each covers where another fails:

- descent: what stands below a known process (`descendants_of`), as long as its parents live. A process that adopts
  orphans (`adopt_orphans`) keeps all of its descendants below itself;
- marks: variables of the run in the environment, inherited by every child. A process that sets its title (Ray's
  agents do) overwrites a part of its environment as /proc shows it, so one mark of several is enough;
- open files: standard output or error in a folder of the run.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_SWEEPS = 50
_PAUSE_S = 0.1


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends (Linux: prctl(2), PR_SET_CHILD_SUBREAPER)."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants_of(pids: Iterable[int]) -> list[psutil.Process]:
    """Everything below the given processes, and these themselves; this process is never among them."""
    found: dict[int, psutil.Process] = {}
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(pid)
            for process in (root, *root.children(recursive=True)):
                found[process.pid] = process
    found.pop(os.getpid(), None)
    return list(found.values())


def marked(
    identity: Mapping[str, str], *, narrowed: Mapping[str, str] | None = None, folders: Collection[Path] = ()
) -> list[psutil.Process]:
    """Processes whose environment holds a variable of `identity`, or whose output goes to a file below `folders`.

    A process that has a variable of `identity` or `narrowed` with another value does not belong.
    """
    marks = {**identity, **(narrowed or {})}
    roots = tuple(f"{folder}{os.sep}" for folder in folders)
    return [
        process
        for process in psutil.process_iter()
        if process.pid != os.getpid() and (_carries(process, identity, marks) or _writes(process, roots))
    ]


def end(find: Callable[[], Iterable[psutil.Process]]) -> int:
    """Kill what `find` gives until it gives nothing that runs; return how many processes were killed.

    Repeated, because a process may fork while the list is being read; bounded, because one in uninterruptible
    sleep stays until its device answers.
    """
    killed: set[int] = set()
    for _ in range(_SWEEPS):
        alive = [process for process in find() if is_running(process)]
        if not alive:
            break
        for process in alive:
            killed.add(process.pid)
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(_PAUSE_S)
    return len(killed)


def is_running(process: psutil.Process) -> bool:
    """Whether the very process still runs: neither ended, nor waiting to be collected, nor another of that id."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _carries(process: psutil.Process, identity: Mapping[str, str], marks: Mapping[str, str]) -> bool:
    try:
        found = process.environ()
    except (psutil.Error, OSError):  # ended meanwhile, or another user's
        return False
    return any(name in found for name in identity) and all(
        found.get(name, value) == value for name, value in marks.items()
    )


def _writes(process: psutil.Process, roots: tuple[str, ...]) -> bool:
    if not roots:
        return False
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if str(Path(f"/proc/{process.pid}/fd/{number}").readlink()).startswith(roots):
                return True
    return False
