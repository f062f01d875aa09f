"""Runs one part of a benchmark as a process of its own, on its own core where there is one, and ends it by its id."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator

import uvloop
from aiohttp import web

from shared.http.binding import bind
from shared.http.lifecycle import Lifecycle, serve

_END_LIMIT_S = 10
LISTEN_BACKLOG = 4096


def announce_and_serve(app: web.Application, port: int) -> None:
    """Listen on 127.0.0.1, print the address on one line, serve until a signal."""
    listener = bind("127.0.0.1", port, setting="--port")
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(app, listener, Lifecycle(), component="bench", drain_limit_s=0))


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
