"""Runs the router as a process: event loop, listening socket, life until a signal."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket

import uvloop

from router.app import build_router, check_binding
from router.settings import RouterSettings
from shared.clock import SystemClock
from shared.http.binding import bind
from shared.http.lifecycle import serve


def run(settings: RouterSettings) -> int:
    """Serve until a signal; the exit code. Raises SettingsError for what cannot start."""
    check_binding(settings)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # asks for a reload once there is something to reload
    listener = bind(settings.host, settings.port, setting="router.port")
    try:
        code: int = uvloop.run(_serve(settings, listener))
        return code
    finally:
        listener.close()


async def _serve(settings: RouterSettings, listener: socket.socket) -> int:
    router = await build_router(settings, SystemClock())
    settle_memory()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, router.policies.reload_soon)
    return await serve(
        router.application,
        listener,
        router.lifecycle,
        component="router",
        drain_limit_s=settings.drain_limit_s,
    )


def settle_memory() -> None:
    """Take what a built router consists of out of the garbage collector's sight: it lives as long as the process, and
    looking through it again and again would make requests wait."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
