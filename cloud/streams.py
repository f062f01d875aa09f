"""Gives a stream's events on, with a comment now and then while the first one is long in coming."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

KEEPALIVE = b": keep-alive\n\n"


class EventStream:
    """The events of `source`; before the first, a comment after each `keepalive_s` of silence (0: none).

    A cold model takes half a minute to its first token, and proxies in between give up on a connection that is silent.
    Later gaps are the engine's own rhythm, and each of their waits would cost a task for every token.
    """

    def __init__(self, source: AsyncGenerator[bytes, None], keepalive_s: float) -> None:
        self._source = source
        self._keepalive_s = keepalive_s
        self._first: asyncio.Task[bytes] | None = None

    async def open(self) -> None:
        """Wait for the first event, but no longer than until a comment is due.

        Raises:
            IsthmusError: the source failed meanwhile: nothing was sent yet, so its status can still be told.
        """
        self._first = asyncio.ensure_future(_next_of(self._source))
        try:
            await asyncio.wait({self._first}, timeout=self._keepalive_s or None)
        except asyncio.CancelledError:
            await self._give_up()
            raise
        if self._first.done():
            self._first.result()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Comments, then events; raises what the source raises."""
        first = self._first or asyncio.ensure_future(_next_of(self._source))
        try:
            while not first.done():
                yield KEEPALIVE
                await asyncio.wait({first}, timeout=self._keepalive_s)
            yield first.result()
            async with aclosing(self._source) as events:
                async for event in events:
                    yield event
        finally:
            await self._give_up()

    async def _give_up(self) -> None:
        """Cancel the wait for the first event, if it still goes on: its request ends with it."""
        if self._first is not None and not self._first.done():
            self._first.cancel()
            await asyncio.gather(self._first, return_exceptions=True)


async def _next_of(source: AsyncGenerator[bytes, None]) -> bytes:
    return await anext(source)
