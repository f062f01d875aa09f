"""Runs one part of a benchmark as a process of its own, on its own core where there is one, and ends it by its id."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

_END_LIMIT_S = 10
LISTEN_BACKLOG = 4096


@contextlib.contextmanager
def started(module: str, *arguments: str) -> Iterator[str]:
    """`python -m MODULE ARGUMENTS` for the length of the block; gives the address that it prints first."""
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # noqa: S603 - ours
    try:
        address = process.stdout.readline().strip() if process.stdout else ""
        if not address.startswith("http://"):
            raise RuntimeError(f"{module} did not start")
        yield address
    finally:
        process.terminate()
        try:
            process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()
