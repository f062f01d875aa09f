"""Runs the router as a process, or as several on one port: event loop, listening socket, life until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvloop

from router.app import Place, audit_storage, build_router, check_binding
from router.audit.storage import AuditStorage
from router.privacy.sessions import Sessions
from router.settings import RouterSettings
from router.stores import STATE_TTL_S
from router.workers.hub import Hub
from router.workers.member import Member
from router.workers.parent import Parent, worker_command
from shared import logs
from shared.clock import SystemClock
from shared.http.binding import bind
from shared.http.lifecycle import serve
from shared.http.tls import ListenerTls, TlsFiles
from shared.local_keys import LocalKeys, offer, offered, withdraw


def run(settings: RouterSettings) -> int:
    """Serve until a signal; the exit code. Raises SettingsError for what cannot start."""
    check_binding(settings)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # asks for a reload once there is something to reload
    listener = bind(settings.host, settings.port, setting="router.port")
    try:
        with _local_keys(settings, listener) as local:
            code: int = uvloop.run(_serve(settings, listener, None, local))
        return code
    finally:
        listener.close()


def run_family(settings: RouterSettings, arguments: Sequence[str]) -> int:
    """Serve with `settings.workers` processes, started with `arguments`; the exit code. Raises as `run`."""
    check_binding(settings)
    # Bound and not listening: the port is ours, a port 0 becomes a number, and no connection is ever queued here.
    place = bind(settings.host, settings.port, setting="router.port", shared=True, listening=False)
    storage, _ = audit_storage(settings.audit)
    try:
        number = str(place.getsockname()[1])
        command = worker_command([*arguments, "--host", settings.host, "--port", number])
        with _local_keys(settings, place):
            return asyncio.run(_family(settings, command, storage))
    finally:
        storage.close()
        place.close()


def run_worker(settings: RouterSettings, hub: Path) -> int:
    """Serve as one of several until a signal, or until the parent at `hub` is gone; the exit code."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    listener = bind(settings.host, settings.port, setting="router.port", shared=True)
    try:
        local = offered(settings.host, listener.getsockname()[1])
        code: int = uvloop.run(_serve(settings, listener, hub, local))
        return code
    finally:
        listener.close()


@contextlib.contextmanager
def _local_keys(settings: RouterSettings, listener: socket.socket) -> Iterator[LocalKeys | None]:
    """Keys for the commands and the agent of this home, for as long as the block runs; None where its folder cannot be
    written: they then need keys like anyone else."""
    host, port = settings.host, listener.getsockname()[1]
    try:
        keys = offer(host, port)
    except OSError as error:
        logs.get("router").warning("local_keys_not_written", error=type(error).__name__)
        yield None
        return
    try:
        yield keys
    finally:
        withdraw(host, port, keys)


async def _family(settings: RouterSettings, command: Sequence[str], storage: AuditStorage) -> int:
    clock = SystemClock()
    sessions = Sessions(clock, b"", ttl_s=settings.sessions.ttl_s, limit=settings.sessions.limit)
    hub = Hub(storage, clock, sessions, ttl_s=STATE_TTL_S)
    return await Parent(command, settings.workers, hub, clock).run()


async def _serve(settings: RouterSettings, listener: socket.socket, hub: Path | None, local: LocalKeys | None) -> int:
    tls, clock, member = _tls(settings), SystemClock(), None
    if hub is not None:
        member = Member()
        await member.join(hub, on_parent_gone=lambda: os.kill(os.getpid(), signal.SIGTERM))
    router = await build_router(settings, clock, place=Place(member, local))
    settle_memory()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, router.policies.reload_soon)
    following = None if tls is None else asyncio.create_task(tls.following.run(clock))
    try:
        return await serve(
            router.application,
            listener,
            router.lifecycle,
            component="router",
            drain_limit_s=settings.drain_limit_s,
            tls=None if tls is None else tls.context,
        )
    finally:
        if following is not None:
            following.cancel()
        if member is not None:
            await member.leave()


def settle_memory() -> None:
    """Take what a built router consists of out of the garbage collector's sight: it lives as long as the process, and
    looking through it again and again would make requests wait."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def _tls(settings: RouterSettings) -> ListenerTls | None:
    tls = settings.tls
    if tls is None:
        return None
    return ListenerTls(TlsFiles(tls.cert_file, tls.key_file, tls.client_ca_file), setting="router.tls")
