"""Reads what a driver may hold up for ever: one read at a time, in a thread that nobody waits for at the end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar, cast

_LIMIT_S = 2.0

T = TypeVar("T")


class BoundedRead(Generic[T]):
    """Calls the blocking `read` for whoever awaits it. One that hangs keeps its thread, and no other is started; a
    pool's thread would keep the process from ending."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._pending: asyncio.Future[T] | None = None

    @property
    def is_pending(self) -> bool:
        """Whether a read has begun that nobody has taken in yet."""
        return self._pending is not None

    async def __call__(self) -> T | None:
        """What was read; None where that takes longer than two seconds. Raises whatever `read` raises."""
        if self._pending is None:
            self._pending = self._begun()
        done, _ = await asyncio.wait({self._pending}, timeout=_LIMIT_S)
        if not done:
            return None
        finished, self._pending = self._pending, None
        return finished.result()

    def _begun(self) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(found: T | None, error: BaseException | None) -> None:
            if error is None:
                future.set_result(cast(T, found))
            else:
                future.set_exception(error)

        def work() -> None:
            found, failure = None, None
            try:
                found = self._read()
            except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(settle, found, failure)

        threading.Thread(target=work, name="bounded-read", daemon=True).start()
        return future
