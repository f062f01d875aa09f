"""The client's side of a stream: opened by its first byte, kept alive in silence, ended once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from aiohttp import web

from shared.errors import IsthmusError
from shared.http.direct import DirectResponse
from shared.http.events import begin_stream, break_stream
from shared.openai.envelope import error_event
from shared.openai.sse import KEEPALIVE


class ClientStream:
    """Writes whole events. A comment line goes out after `keepalive_s` of silence (0: never); from the first byte on
    the status is committed, and `headers` is asked at that moment."""

    def __init__(self, request: web.Request, *, headers: Callable[[], Mapping[str, str]], keepalive_s: float) -> None:
        self._request = request
        self._headers = headers
        self._keepalive_s = keepalive_s
        self._loop = asyncio.get_running_loop()
        self._last_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self.response: DirectResponse | None = None
        if keepalive_s > 0:
            self._timer = self._loop.call_later(keepalive_s, self._tick)

    @property
    def committed(self) -> bool:
        """Whether the status line went out."""
        return self.response is not None

    async def send(self, data: bytes) -> None:
        """Write `data`, and wait while the client reads slowly. Raises ConnectionResetError once it has left."""
        response = self.response or self._begun()
        await response.write(data)
        self._last_s = self._loop.time()

    async def finish(self, data: bytes = b"") -> None:
        """End a whole stream with its last bytes."""
        self.close()
        response = self.response or self._begun()
        await response.write_eof(data)

    async def fail(self, error: IsthmusError) -> None:
        """End a stream that cannot go on: one error event and no `[DONE]`."""
        self.close()
        if self.response is not None:
            with contextlib.suppress(ConnectionResetError):
                await break_stream(self.response, error_event(error, self._request.path))

    def close(self) -> None:
        """Send no more comments; safe to call twice."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begun(self) -> DirectResponse:
        response = self.response = begin_stream(self._request, self._headers())
        return response

    def _tick(self) -> None:
        silent_s = self._loop.time() - self._last_s
        if silent_s >= self._keepalive_s:
            self._keep_alive()
            silent_s = 0.0
        self._timer = self._loop.call_later(max(0.01, self._keepalive_s - silent_s), self._tick)

    def _keep_alive(self) -> None:
        response = self.response or self._begun()
        if response.is_held_up:  # it has more than enough to read
            return
        with contextlib.suppress(ConnectionResetError):
            response.put(KEEPALIVE)
            self._last_s = self._loop.time()
