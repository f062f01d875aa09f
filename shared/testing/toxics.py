"""A TCP proxy that spoils what passes through it: latency, cuts, resets, silence, slow ends.

async with ToxicProxy(upstream.url) as proxy:
    proxy.latency_s = 0.05          # every piece of data from now on comes later
    proxy.silent = True             # new data is taken and not passed on: a peer that is half open
    proxy.cut()                     # FIN in the middle of whatever runs
    proxy.reset()                   # RST
    proxy.slow_close_s = 1.0        # an end is passed on that much later
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Self
from urllib.parse import urlsplit

_PIECE_BYTES = 16 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class ToxicProxy:
    """Passes connections on to the address of `target`, as its toxics allow at that moment."""

    def __init__(self, target: str) -> None:
        at = urlsplit(target)
        self._host, self._port = at.hostname or "", at.port or 80
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""
        self.latency_s = 0.0
        self.silent = False
        self.slow_close_s = 0.0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._server is not None:
            self._server.close()
        self.reset()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def move(self, target: str) -> None:
        """Pass later connections on to another address, as a name does after a failover; those that stand stay."""
        at = urlsplit(target)
        self._host, self._port = at.hostname or "", at.port or 80

    def heal(self) -> None:
        """Pass everything on as it comes."""
        self.latency_s = self.slow_close_s = 0.0
        self.silent = False

    def cut(self) -> None:
        """End all connections, both ways, with FIN."""
        for writer in list(self._writers):
            writer.close()

    def reset(self) -> None:
        """End all connections, both ways, with RST."""
        for writer in list(self._writers):
            sock: socket.socket | None = writer.get_extra_info("socket")
            if sock is not None and sock.fileno() >= 0:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._writers.add(writer)
        try:
            there, there_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            self._writers.discard(writer)
            writer.transport.abort()
            return
        self._writers.add(there_writer)
        try:
            await asyncio.gather(self._pass_on(reader, there_writer), self._pass_on(there, writer))
        finally:
            for each in (writer, there_writer):
                self._writers.discard(each)
                each.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_PIECE_BYTES):
                if self.latency_s > 0:
                    await asyncio.sleep(self.latency_s)
                if self.silent:
                    continue
                writer.write(data)
                await writer.drain()
        if self.slow_close_s > 0:
            await asyncio.sleep(self.slow_close_s)
        writer.close()
