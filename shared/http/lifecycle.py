"""Life of an HTTP process: serve, drain on the first signal, leave at once on the second.

While draining, readiness is false and new work is refused with 503 and a closed connection; running requests
go on until they end or the drain limit passes. At the limit, `expired` is set: streams then send one error event.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl

from aiohttp import web

from shared import logs
from shared.errors import Draining
from shared.http.server import Runner

_CLOSE_GRACE_S = 2.0
_CUT_AFTER_S = 0.1
"""What is left to connections once draining is over: they were waited for, or a second signal wants the end."""


class Lifecycle:
    """Counts requests in flight and knows whether the process drains."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.draining = False
        self.drain_started = asyncio.Event()
        self.expired = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def request(self) -> Lifecycle:
        """Count one request for as long as the block of this runs, as in `with lifecycle.request():`.

        Raises:
            Draining: the process takes no new work.
        """
        if self.draining:
            raise Draining("This process is shutting down.")
        return self

    def __enter__(self) -> None:
        self.in_flight += 1
        self._idle.clear()

    def __exit__(self, *_: object) -> None:
        self.in_flight -= 1
        if self.in_flight == 0:
            self._idle.set()

    async def drain(self, limit_s: float) -> bool:
        """Stop taking work and wait for what runs; False when `limit_s` passed first."""
        self.draining = True
        self.drain_started.set()
        try:
            async with asyncio.timeout(limit_s):
                await self._idle.wait()
        except TimeoutError:
            self.expired.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_GRACE_S):
                    await self._idle.wait()
            return False
        return True


async def serve(
    app: web.Application,
    listener: socket.socket,
    lifecycle: Lifecycle,
    *,
    component: str,
    drain_limit_s: float,
    tls: ssl.SSLContext | None = None,
) -> int:
    """Serve `app` on `listener` until a signal, then drain; `tls`: over TLS. Returns the exit code (0, or 130 for a
    hurried end)."""
    log = logs.get(component)
    # A handler is cancelled as soon as its client leaves, so that upstream work stops within the same moment.
    runner = Runner(
        app, handler_cancellation=True, access_log=None, shutdown_timeout=_CUT_AFTER_S, auto_decompress=False
    )
    await runner.setup()
    await web.SockSite(runner, listener, ssl_context=tls).start()
    address = listener.getsockname()
    log.info("listening", host=address[0], port=address[1])
    first, second = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        (second if first.is_set() else first).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        await first.wait()
        log.info("draining", in_flight=lifecycle.in_flight)
        draining = asyncio.create_task(lifecycle.drain(drain_limit_s))
        hurried = asyncio.create_task(second.wait())
        await asyncio.wait({draining, hurried}, return_when=asyncio.FIRST_COMPLETED)
        code = 130 if hurried.done() and not draining.done() else 0
        for task in (draining, hurried):
            task.cancel()
    finally:
        await runner.cleanup()
    log.info("stopped", code=code)
    return code
