"""Runs the router as a process: event loop, listening socket, life until a signal."""

from __future__ import annotations

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
    listener = bind(settings.host, settings.port, setting="router.port")
    try:
        code: int = uvloop.run(_serve(settings, listener))
        return code
    finally:
        listener.close()


async def _serve(settings: RouterSettings, listener: socket.socket) -> int:
    router = await build_router(settings, SystemClock())
    return await serve(
        router.application,
        listener,
        router.lifecycle,
        component="router",
        drain_limit_s=settings.drain_limit_s,
    )
