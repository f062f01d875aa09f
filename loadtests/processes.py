"""Runs locust headless as processes of its own, for a bounded time, and tells which of them did not live to the end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from loadtests.settings import LoadtestSettings
from shared.errors import IsthmusError
from shared.settings import PREFIX, environment

STOP_LIMIT_S = 10
"""How long running answers get to end when the time is over."""
START_LIMIT_S = 60
_SECTION = f"{PREFIX}LOADTEST__"
_OWN = {"fault_commands", "truth", "sensors", "redis", "recorder", "fault_from_ratio", "fault_to_ratio"}
"""What the processes that send do not need."""
_LOG_CHARS = 400


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker that ended before the run did."""

    worker: int
    code: int
    after_s: float

    def __str__(self) -> str:
        how = f"was killed by signal {-self.code}" if self.code < 0 else f"ended with code {self.code}"
        return f"worker {self.worker} {how} after {self.after_s:.0f} s"


@dataclass(frozen=True, slots=True)
class Files:
    """Where the generator leaves what it saw."""

    folder: Path

    @property
    def samples(self) -> Path:
        """Raw samples."""
        return self.folder / "samples.jsonl"

    @property
    def report(self) -> Path:
        """Figures over all samples, and what the workers say of themselves."""
        return self.folder / "generator.json"

    @property
    def log(self) -> Path:
        """What locust printed."""
        return self.folder / "locust.log"


@contextlib.asynccontextmanager
async def generating(settings: LoadtestSettings, files: Files) -> AsyncIterator[Generating]:
    """The processes that send, for the length of the block; none is left after it."""
    running = Generating(settings, files)
    try:
        await running.start()
        yield running
    finally:
        await running.end()


class Generating:
    """Locust alone, or a master and its workers."""

    def __init__(self, settings: LoadtestSettings, files: Files) -> None:
        self._settings = settings
        self._files = files
        self._first: asyncio.subprocess.Process | None = None
        self._workers: list[asyncio.subprocess.Process] = []
        self._began_s = time.monotonic()
        self.lost: list[Lost] = []

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers; those of a run without workers are none."""
        return [process.pid for process in self._workers]

    async def start(self) -> None:
        """Start all processes."""
        if self._settings.workers == 1:
            self._first = await self._spawn(*_headless(self._settings))
            return
        port = _free_port()
        expected = ("--expect-workers", str(self._settings.workers), "--expect-workers-max-wait", str(START_LIMIT_S))
        bind = ("--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", str(port))
        self._first = await self._spawn(*_headless(self._settings), *bind, *expected)
        for _ in range(self._settings.workers):
            self._workers.append(
                await self._spawn("--worker", "--master-host", "127.0.0.1", "--master-port", str(port))
            )

    async def wait(self) -> dict[str, Any]:
        """What the generator reports, once the run is over.

        Raises:
            IsthmusError: locust did not start, did not end in time, or left no report.
        """
        assert self._first is not None  # noqa: S101 - start comes first
        limit_s = self._settings.duration_s + START_LIMIT_S + 4 * STOP_LIMIT_S
        watches = [asyncio.create_task(self._watch(place, worker)) for place, worker in enumerate(self._workers)]
        try:
            code = await asyncio.wait_for(self._first.wait(), limit_s)
        except TimeoutError:
            raise IsthmusError(f"The load test did not end within {limit_s} s and was ended.") from None
        finally:
            for watch in watches:
                watch.cancel()
        if not self._files.report.exists():
            why = "; ".join(map(str, self.lost)) or self._last_words()
            raise IsthmusError(f"The load test ended with code {code} and no report: {why}.")
        report: dict[str, Any] = orjson.loads(self._files.report.read_bytes())
        return report

    async def end(self) -> None:
        """Ask what still runs to stop, then kill it."""
        left = [each for each in (self._first, *self._workers) if each is not None and each.returncode is None]
        if left and self._first is not None and self._first.returncode is not None:
            # Workers end by themselves once their master has.
            await asyncio.wait([asyncio.create_task(each.wait()) for each in left], timeout=3)
        for process in left:
            if process.returncode is None:
                process.terminate()
        if left:
            await asyncio.wait([asyncio.create_task(each.wait()) for each in left], timeout=STOP_LIMIT_S)
        for process in left:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _watch(self, place: int, worker: asyncio.subprocess.Process) -> None:
        code = await worker.wait()
        assert self._first is not None  # noqa: S101 - start comes first
        # A worker that ends with its master ends a moment before the master does.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._first.wait()), 2.0)
            if code == 0:
                return
        self.lost.append(Lost(place, code, time.monotonic() - self._began_s))

    async def _spawn(self, *arguments: str) -> asyncio.subprocess.Process:
        with self._files.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "locust", "--locustfile", str(Path(__file__).with_name("locustfile.py"))),
                *arguments,
                env=_environment(self._settings, self._files),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=log,
            )

    def _last_words(self) -> str:
        lines = self._files.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][-_LOG_CHARS:] if lines else "it said nothing"


def _headless(settings: LoadtestSettings) -> tuple[str, ...]:
    return (
        *("--headless", "--only-summary", "--exit-code-on-error", "0"),
        *("--host", settings.host.rstrip("/")),
        *("--users", str(settings.users), "--spawn-rate", str(settings.spawn_rate)),
        *("--run-time", f"{settings.duration_s}s", "--stop-timeout", str(STOP_LIMIT_S)),
    )


def _environment(settings: LoadtestSettings, files: Files) -> dict[str, str]:
    """This environment with every setting of the load test in it, so that the child reads no file."""
    values = settings.model_dump(mode="json", exclude_none=True, exclude=_OWN)
    values |= {"report": str(files.report), "samples": str(files.samples)}
    if settings.api_key is not None:
        values["api_key"] = settings.api_key.get_secret_value()
    kept = {name: value for name, value in environment().items() if not name.startswith(PREFIX)}
    kept.pop("ISTHMUS_CONFIG", None)
    texts = {name: value if isinstance(value, str) else orjson.dumps(value).decode() for name, value in values.items()}
    return kept | {f"{_SECTION}{name.upper()}": text for name, text in texts.items()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
