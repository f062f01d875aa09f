"""Keeps one tier running: start, wait until ready, start again after a crash, hold down on demand.

Until the tier was ready once, an exit is a failed start and ends the run with the tier's own error line. After that
an exit is a crash: it is reported, and the tier starts again after a backoff, while the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

from shared.backoff import full_jitter_s
from shared.clock import Clock
from shared.errors import SettingsError, StartFailed
from shared.launcher.console import Reporter
from shared.launcher.logfile import error_line
from shared.launcher.processes import Child, child_environment, sweep
from shared.launcher.readiness import Probe
from shared.launcher.settings import RestartSettings
from shared.launcher.tiers import Tier
from shared.processes import is_running


class TierState(StrEnum):
    """Where a tier is in its life."""

    WAITING = "waiting"
    PREPARING = "preparing"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class Launch:
    """How the tiers of this run are started."""

    run_id: str
    folder: Path
    logs: Path
    config: Path | None
    restart: RestartSettings
    clock: Clock
    program: tuple[str, ...]

    def command(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The command line for `words`, with the shared settings file."""
        config = ("--config", str(self.config)) if self.config else ()
        return (*self.program, *words, *config)


class TierRunner:
    """One tier's process over the whole run."""

    def __init__(
        self,
        tier: Tier,
        launch: Launch,
        probe: Probe,
        reporter: Reporter,
        *,
        url: str,
        settings: Mapping[str, str],
        ready_limit_s: float,
    ) -> None:
        self.tier = tier
        self.url = url
        self.state = TierState.WAITING
        self.restarts = 0
        self.launched = asyncio.Event()
        self.was_ready = asyncio.Event()
        self._launch = launch
        self._probe = probe
        self._reporter = reporter
        self._env = child_environment(launch.folder, launch.run_id, tier.name, settings)
        self._log = launch.logs / f"{tier.name}.log"
        self._ready_limit_s = ready_limit_s
        self._released = asyncio.Event()
        self._released.set()
        self._child: Child | None = None
        self.family: list[psutil.Process] = []
        self._fraction: Callable[[], float] = random.SystemRandom().random

    @property
    def pid(self) -> int | None:
        """Process id while a process runs."""
        return self._child.pid if self._child else None

    async def prepare(self) -> None:
        """Run the tier's preparing commands, one after the other.

        Raises:
            StartFailed: with the error line of the command.
        """
        self.state = TierState.PREPARING
        for words, command in self.tier.prepare:
            began_ms = self._launch.clock.now_ms()
            self._reporter.note(self.tier.name, words)
            code = await self._run_to_end(command)
            if code != 0:
                raise StartFailed(self._reason(f"{' '.join(command)} ended with code {code}"))
            seconds = (self._launch.clock.now_ms() - began_ms) / 1000
            self._reporter.note(self.tier.name, f"{words}: done in {seconds:.1f} s")

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            SettingsError: the tier does not take its settings, or this machine.
            StartFailed: the tier never became ready.
        """
        attempt = 0
        while True:
            await self._released.wait()
            self.state = TierState.STARTING
            began_ms = self._launch.clock.now_ms()
            code = await self._serve_once()
            if not self._released.is_set():
                self.state = TierState.HELD
                self._reporter.note(self.tier.name, "killed and held down")
                continue
            if not self.was_ready.is_set():
                reason = self._reason(f"it ended with code {code} before it was ready")
                if code == SettingsError.exit_code:
                    raise SettingsError(reason)
                raise StartFailed(reason)
            self.restarts += 1
            stable = self._launch.clock.now_ms() - began_ms >= self._launch.restart.stable_s * 1000
            attempt = 0 if stable else attempt
            wait_s = full_jitter_s(
                attempt,
                base_s=self._launch.restart.base_s,
                cap_s=self._launch.restart.cap_s,
                fraction=self._fraction(),
            )
            attempt += 1
            self.state = TierState.RESTARTING
            self._reporter.note(self.tier.name, f"ended with code {code}; starts again in {wait_s:.1f} s")
            await self._launch.clock.sleep(wait_s)

    async def kill(self) -> None:
        """End the tier's processes at once and keep it down until `release`."""
        self._released.clear()
        self.remember_family()
        if self._child is not None:
            self._child.kill_group()
        await self._sweep()

    def release(self) -> None:
        """Let a held tier start again."""
        self._released.set()

    def remember_family(self) -> None:
        """Note the processes of this tier as long as their descent shows; what outlives it is ended by its name."""
        if self._child is not None:
            self.family = [p for p in self.family if is_running(p)]
            self.family += self._child.family()

    def ask_to_stop(self) -> None:
        """Let the tier drain and end."""
        self.remember_family()
        if self._child is not None:
            self._child.ask_to_stop()

    async def ended(self) -> None:
        """Return when no process of this tier's own runs."""
        if self._child is not None:
            await self._child.wait()

    def kill_now(self) -> None:
        """SIGKILL the tier's process group."""
        self.remember_family()
        if self._child is not None:
            self._child.kill_group()

    async def _sweep(self) -> None:
        await sweep(self._launch.folder, run_id=self._launch.run_id, tier=self.tier.name, known=self.family)

    async def _run_to_end(self, command: tuple[str, ...]) -> int:
        child = await self._start(command)
        return await child.wait()

    async def _serve_once(self) -> int:
        """Start the tier and watch it until it ends; return its exit code."""
        child = await self._start(self.tier.serve)
        began_ms = self._launch.clock.now_ms()
        ended = asyncio.create_task(child.wait())
        ready = asyncio.create_task(self._probe.until_ready(self.url + self.tier.ready_path, self.tier.is_ready))
        try:
            await asyncio.wait({ended, ready}, timeout=self._ready_limit_s, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                self.state = TierState.READY
                self.was_ready.set()
                seconds = (self._launch.clock.now_ms() - began_ms) / 1000
                self._reporter.note(self.tier.name, f"ready after {seconds:.1f} s", url=self.url)
            elif not ended.done():
                self.remember_family()
                child.kill_group()
                await self._sweep()
                await ended
                if not self.was_ready.is_set():
                    raise StartFailed(
                        f"{self.tier.name}: not ready within {self._ready_limit_s:g} s (log: {self._log})"
                    )
            code = await ended
        finally:
            for task in (ended, ready):
                task.cancel()
            await asyncio.gather(ended, ready, return_exceptions=True)
        await self._sweep()
        return code

    async def _start(self, command: tuple[str, ...]) -> Child:
        try:
            self._child = await Child.start(self._launch.command(command), env=self._env, log=self._log)
        except OSError as error:
            raise StartFailed(f"{self.tier.name}: cannot be started ({error.strerror}).") from None
        self.launched.set()
        return self._child

    def _reason(self, otherwise: str) -> str:
        """The tier's own error line, else `otherwise`; and where the whole log is."""
        said = None
        with contextlib.suppress(OSError):
            said = error_line(self._log)
        return f"{self.tier.name}: {said or otherwise} (log: {self._log})"
