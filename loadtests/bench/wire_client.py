"""Clients on bare sockets: they send the same bytes again and again and read each answer to its end, no more.

What they cost is a few microseconds a request, so that the process under test is what is busy.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

from shared.openai.sse import DONE

_HEAD_END = b"\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_STAMP = re.compile(rb'"content":"(\d{6,20})"')


@dataclass(slots=True)
class Load:
    """What one run saw: answers, seconds it took, and the time of each answer until its end (milliseconds)."""

    took_s: float = 0.0
    answer_ms: list[float] = field(default_factory=list)

    @property
    def per_s(self) -> float:
        """Answers a second."""
        return len(self.answer_ms) / self.took_s if self.took_s else 0.0


@dataclass(slots=True)
class Lateness:
    """How late stamped events came (milliseconds), and how many streams ended whole."""

    late_ms: list[float] = field(default_factory=list)
    whole: int = 0


def request_bytes(address: str, path: str, body: bytes) -> bytes:
    """One POST as it goes over the wire."""
    host = urlsplit(address).netloc
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + _HEAD_END + body


class _Caller(asyncio.Protocol):
    """Asks until the time is over; `done` is set at the end, or gets what went wrong."""

    def __init__(self, request: bytes, until_s: float, load: Load) -> None:
        self._request = request
        self._until_s = until_s
        self._load = load
        self._received = bytearray()
        self._began_s = 0.0
        self._transport: asyncio.Transport | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class has no common base
        self._ask(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError("the connection ended before the answer"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._transport is None or not _is_whole(self._received):
            return
        if not self._received.startswith(b"HTTP/1.1 200 "):
            self.done.set_exception(RuntimeError(f"answered {bytes(self._received[:12])!r}"))
            self._transport.close()
            return
        now_s = time.perf_counter()
        self._load.answer_ms.append((now_s - self._began_s) * 1000)
        if now_s >= self._until_s:
            self.done.set_result(None)
            self._transport.close()
            return
        self._ask(self._transport)

    def _ask(self, transport: asyncio.Transport) -> None:
        self._received.clear()
        self._began_s = time.perf_counter()
        transport.write(self._request)


def _is_whole(received: bytearray) -> bool:
    end = received.find(_HEAD_END)
    if end < 0:
        return False
    length = _LENGTH.search(received, 0, end)
    if length is not None:
        return len(received) >= end + len(_HEAD_END) + int(length[1])
    return received.endswith(_LAST_CHUNK)


async def ask_for(address: str, path: str, body: bytes, *, clients: int, seconds: float) -> Load:
    """Keep `clients` connections busy for `seconds`.

    Raises:
        RuntimeError: an answer was not 200, or a connection ended before its answer.
    """
    loop, load, request = asyncio.get_running_loop(), Load(), request_bytes(address, path, body)
    at = urlsplit(address)
    host, port = at.hostname or "", at.port or 80
    began_s = time.perf_counter()
    callers = [
        (await loop.create_connection(lambda: _Caller(request, began_s + seconds, load), host, port))[1]
        for _ in range(clients)
    ]
    await asyncio.gather(*(caller.done for caller in callers))
    load.took_s = time.perf_counter() - began_s
    return load


async def watch_streams(address: str, path: str, body: bytes, *, streams: int) -> Lateness:
    """Open `streams` streams of stamped events at the same time and read each to its end."""
    seen, request, at = Lateness(), request_bytes(address, path, body), urlsplit(address)

    async def watch() -> None:
        reader, writer = await asyncio.open_connection(at.hostname, at.port)
        writer.write(request)
        rest = b""
        while not rest.endswith(_LAST_CHUNK):
            data = await reader.read(65536)
            if not data:
                raise RuntimeError("a stream ended before it was whole")
            if not rest and not data.startswith(b"HTTP/1.1 200 "):
                raise RuntimeError(f"a stream was refused: {data.decode(errors='replace')}")
            now_ns = time.monotonic_ns()
            seen.late_ms.extend((now_ns - int(stamp)) / 1e6 for stamp in _STAMP.findall(data))
            rest = (rest + data)[-64:]
        seen.whole += DONE in rest
        writer.close()

    await asyncio.gather(*(watch() for _ in range(streams)))
    return seen
