"""Ends every process of one cloud run, also the rest of one that was killed."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from shared import processes

MARK = "ISTHMUS_CLOUD_RUN_ID"


def marked(run_id: str, temp_dir: Path | None = None) -> list[psutil.Process]:
    """Processes of the run `run_id`, whose logs are below `temp_dir`, without this one."""
    return processes.marked({MARK: run_id}, folders=[temp_dir] if temp_dir else [])


def sweep(run_id: str, temp_dir: Path | None = None, *, own: bool = False) -> int:
    """Kill what belongs to the run until nothing is left; return how many processes were killed.

    With `own`, all that stands below this process belongs to it.
    """

    def find() -> list[psutil.Process]:
        below = processes.descendants_of([os.getpid()]) if own else []
        return [*below, *marked(run_id, temp_dir)]

    return processes.end(find)
