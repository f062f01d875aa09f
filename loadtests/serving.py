"""Serves a small application of the load tests on loopback: prints its address once it listens, ends at a signal."""

from __future__ import annotations

import asyncio

import typer
import uvloop
from aiohttp import web

from shared.http.binding import bind
from shared.http.lifecycle import Lifecycle, serve


def announce_and_serve(app: web.Application, port: int, *, component: str = "bench") -> None:
    """Listen on 127.0.0.1, print the address on one line, serve until a signal."""
    listener = bind("127.0.0.1", port, setting="--port")
    typer.echo(f"http://127.0.0.1:{listener.getsockname()[1]}")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(app, listener, Lifecycle(), component=component, drain_limit_s=0))
