"""Starts the workers of one port, replaces those that die, passes signals on, and ends with the last of them."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from router.workers.hub import Hub
from shared import logs
from shared.clock import Clock
from shared.settings import environment

_BACKOFF_S, _MOST_BACKOFF_S = 0.5, 30.0
_STEADY_S = 30.0
"""A worker that lived this long is replaced at once when it dies."""
_SETTINGS_FAULT = 2


class Parent:
    """One family of `count` workers, each started as `command` with the socket of the hub added."""

    def __init__(self, command: Sequence[str], count: int, hub: Hub, clock: Clock) -> None:
        self._command = tuple(command)
        self._count = count
        self._hub = hub
        self._clock = clock
        self._log = logs.get("workers")
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._ending = asyncio.Event()
        self._hurried = False
        self._fault: int | None = None

    async def run(self) -> int:
        """Until a signal, or until the workers cannot start; the exit code."""
        folder = Path(tempfile.mkdtemp(prefix="isthmus-router-"))  # mode 0700
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        loop.add_signal_handler(signal.SIGHUP, self._tell, signal.SIGHUP)
        gathering = asyncio.create_task(self._hub.run())
        try:
            await self._hub.open(folder / "hub")
            await asyncio.gather(*(self._kept(place, folder / "hub") for place in range(self._count)))
        finally:
            gathering.cancel()
            await asyncio.gather(gathering, return_exceptions=True)
            await self._hub.close()
            shutil.rmtree(folder, ignore_errors=True)
        self._log.info("stopped", code=self._code())
        return self._code()

    async def _kept(self, place: int, socket: Path) -> None:
        """Keep one place filled until the end."""
        wait_s, began_ms = _BACKOFF_S, self._clock.now_ms()
        while not self._ending.is_set():
            began_ms = self._clock.now_ms()
            # Sessions of their own: a terminal's Ctrl-C reaches the parent alone, which passes it on in order.
            child = await asyncio.create_subprocess_exec(
                *self._command, "--worker-of", str(socket), start_new_session=True, env=dict(environment())
            )
            self._children[place] = child
            self._log.info("worker_started", place=place, pid=child.pid)
            if self._ending.is_set():
                _signal(child, signal.SIGTERM)
            code = await child.wait()
            del self._children[place]
            if self._ending.is_set():
                return
            lived_s = (self._clock.now_ms() - began_ms) / 1000
            if code == _SETTINGS_FAULT:
                self._fault = code  # its own line says what is wrong: another one would say the same
                self._end()
                return
            wait_s = _BACKOFF_S if lived_s >= _STEADY_S else min(wait_s * 2, _MOST_BACKOFF_S)
            self._log.warning("worker_died", place=place, code=code, again_in_s=0 if lived_s >= _STEADY_S else wait_s)
            if lived_s < _STEADY_S:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._ending.wait()

    def _end(self) -> None:
        self._hurried = self._ending.is_set()
        self._ending.set()
        self._tell(signal.SIGTERM)

    def _tell(self, number: signal.Signals) -> None:
        for child in self._children.values():
            _signal(child, number)

    def _code(self) -> int:
        if self._fault is not None:
            return self._fault
        return 130 if self._hurried else 0


def worker_command(arguments: Sequence[str]) -> tuple[str, ...]:
    """How a worker is started: this very program with the `arguments` of `isthmus router serve`."""
    return (sys.executable, "-P", "-m", "shared.cli", "router", "serve", *arguments)


def _signal(child: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(number)
