"""Runs `isthmus` as a process for a test: settings in a file, a home of its own, ended by its id whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from shared.settings import HOME_VARIABLE, environment

_ROOT = Path(__file__).parents[2]
_PAUSE_S = 0.05


class NotStarted(AssertionError):
    """The program ended, or was not ready in time; the message is the end of its log."""


class Program:
    """One running `isthmus ARGUMENTS`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log

    def wait_answer(self, url: str, limit_s: float) -> None:
        """Return once `url` answers 200.

        Raises:
            NotStarted: the process ended or `limit_s` passed first.
        """
        deadline_s = time.monotonic() + limit_s
        while time.monotonic() < deadline_s:
            if self.process.poll() is not None:
                break
            if _answers(url):
                return
            time.sleep(_PAUSE_S)
        raise NotStarted(f"{url} did not answer (exit code {self.process.poll()})\n{self.log_end()}")

    def log_end(self, chars: int = 4000) -> str:
        """The last part of what the program printed."""
        return self.log.read_text(errors="replace")[-chars:]

    def end(self, limit_s: float = 30.0) -> int:
        """SIGTERM, then SIGKILL to the whole group; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            return self.process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - a loopback address of a test
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextlib.contextmanager
def isthmus(*arguments: str, home: Path, settings: Mapping[str, Any], name: str = "program") -> Iterator[Program]:
    """`isthmus ARGUMENTS --config FILE` with `settings` in the file and `home` as its home, for the block."""
    config, log = home / f"{name}.yaml", home / f"{name}.log"
    config.write_text(yaml.safe_dump(dict(settings)))
    with log.open("ab") as out:
        process = subprocess.Popen(  # noqa: S603 - our own program
            [*command(), *arguments, "--config", str(config)],
            env=child_environment(home),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    program = Program(process, log)
    try:
        yield program
    finally:
        program.end()


def command() -> tuple[str, ...]:
    """The words that start `isthmus` from this tree."""
    return (sys.executable, "-P", "-m", "shared.cli")


def child_environment(home: Path) -> dict[str, str]:
    """This environment without settings of Isthmus, with `home` and this tree on the import path."""
    kept = {name: value for name, value in environment().items() if not name.startswith("ISTHMUS_")}
    paths = os.pathsep.join(filter(None, (str(_ROOT), kept.get("PYTHONPATH"))))
    return kept | {HOME_VARIABLE: str(home), "PYTHONPATH": paths}
