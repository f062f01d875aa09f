"""Sessions of the launcher over a played `isthmus`, in this process, on free ports."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from shared.clock import SystemClock
from shared.launcher.console import Ready
from shared.launcher.processes import marked, sweep
from shared.launcher.session import Session
from shared.launcher.settings import UpSettings

PLAYED = (sys.executable, str(Path(__file__).with_name("played.py")))


@dataclass
class Heard:
    """What the launcher told."""

    notes: list[tuple[str, str]] = field(default_factory=list)
    readies: list[Ready] = field(default_factory=list)
    lines: list[tuple[str, bytes]] = field(default_factory=list)

    def note(self, tier: str, message: str, **_: Any) -> None:
        self.notes.append((tier, message))

    def ready(self, ready: Ready) -> None:
        self.readies.append(ready)

    def log_line(self, tier: str, line: bytes) -> None:
        self.lines.append((tier, line))

    def said(self, tier: str, part: str) -> bool:
        """Whether a note about `tier` held `part`."""
        return any(name == tier and part in message for name, message in self.notes)


@dataclass
class Run:
    """One session that runs as a task."""

    session: Session
    heard: Heard
    home: Path
    folder: Path
    task: asyncio.Task[int]

    def tell(self, tier: str, behaviour: str) -> None:
        """Tell the played tier how to behave."""
        (self.home / f"{tier}.{behaviour}").touch()

    def calls(self) -> list[str]:
        """Commands that were started, in order."""
        return (self.home / "calls").read_text().splitlines()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`; a session that ends first raises what it ended with."""
        async with asyncio.timeout(30):
            while not condition():
                if self.task.done():
                    self.task.result()
                    raise AssertionError("the session ended before the condition held")
                await asyncio.sleep(0.01)

    async def until_ready(self) -> None:
        """Wait until every tier was announced."""
        await self.until(lambda: any(set(r.tiers) == set(self.session.tiers) for r in self.heard.readies))

    def processes(self) -> list[psutil.Process]:
        """Everything that this folder's runs have started and that still runs."""
        return [p for p in marked(self.folder) if p.status() != psutil.STATUS_ZOMBIE]


Start = Callable[..., Run]


@pytest.fixture
async def start(
    isolated_environment: Path, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Start]:
    """Start a session: `start(tiers=("edge",), **settings)`."""
    home, folder = isolated_environment, isolated_environment / "run"
    folder.mkdir()
    for tier in ("edge", "router", "cloud"):
        monkeypatch.setenv(f"ISTHMUS__{tier.upper()}__PORT", str(free_port()))
    runs: list[Run] = []

    def begin(tiers: tuple[str, ...] = ("edge",), **settings: Any) -> Run:
        fast = {"restart": {"base_s": 0.01, "cap_s": 0.05}, "stop_limit_s": 5, **settings}
        heard = Heard()
        session = Session(
            UpSettings(tiers=tiers, **fast), None, heard, folder=folder, clock=SystemClock(), program=PLAYED
        )
        run = Run(session, heard, home, folder, asyncio.create_task(session.run()))
        runs.append(run)
        return run

    yield begin
    for run in runs:
        run.task.cancel()
        await asyncio.gather(run.task, return_exceptions=True)
    await sweep(folder)
