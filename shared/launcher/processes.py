"""Child programs of a run: each in a session of its own, marked in its environment, and ended to the last process.

Ray and vLLM start processes that leave their parent's group, so a group signal is not enough: whatever carries the
run's mark in its environment belongs to the run, and is found through /proc.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from shared.settings import HOME_VARIABLE, environment, home

RUN_VARIABLE = "ISTHMUS_RUN_ID"
FOLDER_VARIABLE = "ISTHMUS_RUN_DIR"
TIER_VARIABLE = "ISTHMUS_RUN_TIER"
_SWEEPS = 50
_SWEEP_PAUSE_S = 0.1
ISTHMUS = (sys.executable, "-P", "-m", "shared.cli")
"""The `isthmus` command of this installation. -P keeps the working directory off the import path: a folder there that
is named like a package must not be imported."""


class Child:
    """One started program whose output goes to a log file."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, command: tuple[str, ...], *, env: Mapping[str, str], log: Path) -> Child:
        """Start `command`; it does not see the terminal's Ctrl-C, which is for the launcher alone."""
        with log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=env,
                start_new_session=True,
            )
        return cls(process)

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its group."""
        return self._process.pid

    async def wait(self) -> int:
        """The exit code; negative for a signal."""
        return await self._process.wait()

    def ask_to_stop(self) -> None:
        """SIGTERM to the program alone: it knows in which order its own children end."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def kill_group(self) -> None:
        """SIGKILL to the program and all that stayed in its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def child_environment(folder: Path, run_id: str, tier: str, settings: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with `settings` and the marks of the run added."""
    marks = {FOLDER_VARIABLE: str(folder), RUN_VARIABLE: run_id, TIER_VARIABLE: tier, HOME_VARIABLE: str(home())}
    return {**environment(), "PYTHONUNBUFFERED": "1", **settings, **marks}


def marked(folder: Path, *, run_id: str | None = None, tier: str | None = None) -> list[psutil.Process]:
    """Processes of the runs whose folder is `folder`: of any run and tier where None is given."""
    wanted = {FOLDER_VARIABLE: str(folder)}
    if run_id is not None:
        wanted[RUN_VARIABLE] = run_id
    if tier is not None:
        wanted[TIER_VARIABLE] = tier
    return [process for process in psutil.process_iter() if _carries(process, wanted)]


def _carries(process: psutil.Process, wanted: Mapping[str, str]) -> bool:
    if process.pid == os.getpid():
        return False
    try:
        found = process.environ()
    except (psutil.Error, OSError):  # ended meanwhile, or another user's
        return False
    return all(found.get(name) == value for name, value in wanted.items())


async def sweep(folder: Path, *, run_id: str | None = None, tier: str | None = None) -> int:
    """Kill marked processes until none is left; return how many there were.

    Repeated, because a process may fork while the list is being read; bounded, because one in uninterruptible
    sleep stays until its device answers.
    """
    killed: set[int] = set()
    for _ in range(_SWEEPS):
        alive = [p for p in await asyncio.to_thread(marked, folder, run_id=run_id, tier=tier) if _is_running(p)]
        if not alive:
            break
        for process in alive:
            killed.add(process.pid)
            with contextlib.suppress(psutil.Error):
                process.kill()
        await asyncio.sleep(_SWEEP_PAUSE_S)
    return len(killed)


def _is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
