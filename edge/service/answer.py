"""Writes a stream to one client: nothing is committed before content, silence is filled, a break is told once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from aiohttp import web

from edge.service.dialect import Dialect
from shared.clock import Clock
from shared.errors import IsthmusError
from shared.http.events import break_stream, open_stream


class ClientLeft(ConnectionResetError):
    """The client is gone, or left its stream unread for too long; nobody is there to be told anything."""


class StreamAnswer:
    """One event stream. Status 200 is sent with the first event or keep-alive, and not before."""

    def __init__(
        self,
        request: web.Request,
        dialect: Dialect,
        headers: Mapping[str, str],
        *,
        clock: Clock,
        keepalive_s: float,
        stall_limit_s: float,
    ) -> None:
        self._request = request
        self._dialect = dialect
        self._headers = {"Content-Type": dialect.stream_type} | dict(headers)
        self._clock = clock
        self._keepalive_s = keepalive_s
        self._stall_limit_s = stall_limit_s
        self._response: web.StreamResponse | None = None
        self._writing = asyncio.Lock()
        self._last_write_ms = clock.now_ms()

    @property
    def committed(self) -> bool:
        """Whether the status has been sent."""
        return self._response is not None

    async def send(self, data: bytes) -> None:
        """Write `data`, opening the stream first if need be.

        Raises:
            ClientLeft: the client is gone or does not read.
        """
        async with self._writing:
            self._last_write_ms = self._clock.now_ms()
            try:
                async with asyncio.timeout(self._stall_limit_s):
                    if self._response is None:
                        self._response = await open_stream(self._request, self._headers)
                    await self._response.write(data)
            except TimeoutError:
                if self._request.transport is not None:
                    self._request.transport.abort()
                raise ClientLeft from None
            except ConnectionError:
                raise ClientLeft from None

    async def finish(self) -> web.StreamResponse:
        """End a stream that is whole."""
        if self._response is None:
            raise RuntimeError("a stream is finished only after something was sent")
        with contextlib.suppress(ConnectionError):
            await self._response.write_eof()
        return self._response

    async def broken(self, error: IsthmusError) -> web.StreamResponse:
        """End a committed stream that cannot go on: one error and no end mark."""
        if self._response is None:
            raise error
        with contextlib.suppress(ConnectionError):
            await break_stream(self._response, self._dialect.broken(error))
        return self._response

    @contextlib.asynccontextmanager
    async def kept_alive(self) -> AsyncIterator[None]:
        """Send what means nothing after every `keepalive_s` of silence for as long as the block runs; 0 sends none."""
        if self._keepalive_s == 0:
            yield
            return
        task = asyncio.create_task(self._keep_alive())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ClientLeft):
                await task

    async def _keep_alive(self) -> None:
        while True:
            silent_s = (self._clock.now_ms() - self._last_write_ms) / 1000
            if silent_s >= self._keepalive_s:
                await self.send(self._dialect.keepalive())
            else:
                await self._clock.sleep(self._keepalive_s - silent_s)
