"""Child programs of a run: each in a session of its own, marked in its environment, and ended to the last process.

Ray and vLLM start processes that leave their parent's group, so a group signal is not enough: see `shared.processes`
for how they are found.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from shared import processes
from shared.settings import HOME_VARIABLE, environment, home

RUN_VARIABLE = "ISTHMUS_RUN_ID"
FOLDER_VARIABLE = "ISTHMUS_RUN_DIR"
TIER_VARIABLE = "ISTHMUS_RUN_TIER"
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

    def family(self) -> list[psutil.Process]:
        """The program and all that stands below it now: to be taken before it is ended, while the links are there."""
        return processes.descendants_of([self.pid]) if self._process.returncode is None else []

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
    identity = {FOLDER_VARIABLE: str(folder)}
    if run_id is not None:
        identity[RUN_VARIABLE] = run_id
    return processes.marked(identity, narrowed={TIER_VARIABLE: tier} if tier is not None else {})


async def sweep(
    folder: Path, *, run_id: str | None = None, tier: str | None = None, known: Iterable[psutil.Process] = ()
) -> int:
    """Kill marked processes, and those in `known` with all below them, until none is left; return how many."""
    roots = list(known)

    def find() -> list[psutil.Process]:
        alive = [process.pid for process in roots if processes.is_running(process)]
        return [*processes.descendants_of(alive), *marked(folder, run_id=run_id, tier=tier)]

    return await asyncio.to_thread(processes.end, find)
