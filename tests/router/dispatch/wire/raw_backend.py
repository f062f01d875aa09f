"""A backend on bare sockets that answers every request with the request's own body, as a script says how."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import Self

Serve = Callable[[bytes, asyncio.StreamWriter], Awaitable[bool]]
"""Answers one request; whether the connection goes on."""


def answered(body: bytes, *, chunked: bool = False) -> bytes:
    """A whole answer with that body."""
    if chunked:
        return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def echo(body: bytes, writer: asyncio.StreamWriter) -> bool:
    writer.write(answered(body))
    return True


class RawBackend:
    """Listens on 127.0.0.1; `writers` has the connections that were made, in their order."""

    def __init__(self, serve: Serve = echo, tls: ssl.SSLContext | None = None) -> None:
        self.serve = serve
        self.writers: list[asyncio.StreamWriter] = []
        self.heads: list[bytes] = []
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/v1/x"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self.writers:
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self.writers.append(writer)
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(size)
                self.heads.append(head)
                if not await self.serve(body, writer):
                    break
        writer.close()
