"""A shell that stays: commands of a page run in it one after the other; variables and background jobs remain."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

_MARK = "--isthmus-docs-end--"


class Shell:
    """One bash, and what it may take for a command."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
        )

    def run(self, command: str, limit_s: float = 100.0) -> tuple[int, str]:
        """Exit code and everything printed, standard error included.

        Raises:
            TimeoutError: it did not end in time; the message is what it printed.
        """
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        self._bash.stdin.write(f"{{ {command}\n}} </dev/null\nprintf '\\n{_MARK}%d\\n' $?\n".encode())
        self._bash.stdin.flush()
        printed, deadline_s = b"", time.monotonic() + limit_s
        while True:
            head, mark, tail = printed.rpartition(_MARK.encode())
            if mark and tail.endswith(b"\n"):
                return int(tail), head.removesuffix(b"\n").decode(errors="replace")
            ready, _, _ = select.select([self._bash.stdout], [], [], max(deadline_s - time.monotonic(), 0))
            piece = os.read(self._bash.stdout.fileno(), 65536) if ready else b""
            if not piece:
                raise TimeoutError(printed.decode(errors="replace"))
            printed += piece

    def end(self) -> None:
        """End it and whatever it left running."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._bash.pid, number)
                self._bash.wait(15)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        for pipe in (self._bash.stdin, self._bash.stdout):
            if pipe is not None:
                pipe.close()
