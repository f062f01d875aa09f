"""Ends an answer that must not go on: the engine has gone silent, or the process stops waiting for what still runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from shared.errors import BackendTimeout, Draining


@contextlib.asynccontextmanager
async def answering(expired: asyncio.Event, *, idle_limit_s: float) -> AsyncIterator[Callable[[], None]]:
    """Run the block until it ends, `expired` is set, or `idle_limit_s` pass after a call of the yielded function.

    Raises:
        BackendTimeout: nothing came for `idle_limit_s`.
        Draining: `expired` was set.
    """
    loop = asyncio.get_running_loop()
    expiry = asyncio.ensure_future(expired.wait())
    try:
        async with asyncio.timeout(None) as scope:

            def end_now(_: object) -> None:
                scope.reschedule(loop.time())

            expiry.add_done_callback(end_now)
            try:
                yield lambda: None if expired.is_set() else scope.reschedule(loop.time() + idle_limit_s)
            finally:
                expiry.remove_done_callback(end_now)
    except TimeoutError:
        if not scope.expired():
            raise
        if expired.is_set():
            raise Draining("This process is shutting down; the answer was cut.") from None
        raise BackendTimeout("The engine sent nothing for too long.", phase="idle") from None
    finally:
        expiry.cancel()
