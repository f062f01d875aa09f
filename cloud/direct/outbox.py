"""The replica's side of direct streams: it writes the events of its streams to the ingresses that asked for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast

from cloud.direct.frames import NUMBER_BYTES, SIGN_OF_LIFE, frame
from cloud.direct.inbox import Address, Sent
from shared.errors import BackendUnreachable, StreamBroken

_CONNECT_LIMIT_S = 5.0
_HIGH_WATER_BYTES = 4 * 1024 * 1024
"""What an ingress may leave unread before its streams wait for it."""


class Outbox:
    """One connection to each ingress, made at the first stream for it.

    An engine's step gives a token to each of its sequences; what one turn of the loop brings for an ingress leaves in
    one write.
    """

    def __init__(self) -> None:
        self.lines: dict[bytes, asyncio.Task[_Line]] = {}
        """By the greeting of their ingress."""

    async def send(self, address: Address, source: AsyncIterator[Any]) -> Sent:
        """Send the events of `source`, which are text, to `address`; what is no text ends it, and is in the result.

        Raises:
            BackendUnreachable: the ingress cannot be reached from here.
            StreamBroken: the connection to it ended.
        """
        line: _Line | None = None
        events = 0
        async with aclosing(source) as items:  # type: ignore[type-var]  # every source here is a generator
            async for item in items:
                if not isinstance(item, str):
                    return Sent(events, item)
                if line is None:
                    line = await self._line(address)
                if address.stream in line.unread:
                    raise StreamBroken("Nobody reads this stream.")
                await line.write(frame(address.stream, item.encode()))
                events += 1
        line = line or await self._line(address)
        await line.write(frame(address.stream, b""))
        return Sent(events)

    async def close(self) -> None:
        """Hang up on every ingress."""
        for task in self.lines.values():
            if task.done() and not _is_over(task):
                await task.result().hang_up()
            task.cancel()

    async def _line(self, address: Address) -> _Line:
        task = self.lines.get(address.greeting)
        if task is None or _is_over(task):
            self.lines = {greeting: each for greeting, each in self.lines.items() if not _is_over(each)}
            # One task for all that wait: who leaves meanwhile takes it from nobody.
            task = self.lines[address.greeting] = asyncio.ensure_future(_connected(address))
        try:
            return await asyncio.shield(task)
        except (OSError, TimeoutError):
            raise BackendUnreachable("The replica cannot reach the ingress.") from None


class _Line(asyncio.Protocol):
    """One connection to an ingress."""

    def __init__(self, sign_period_s: float) -> None:
        self.closed = False
        self.unread: set[int] = set()
        """Streams that the ingress said nobody reads."""
        self._back = bytearray()
        self._sign_period_s = sign_period_s
        self._transport: asyncio.Transport | None = None
        self._held: list[bytes] = []
        self._free = asyncio.Event()
        self._free.set()
        self._lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asked whether it is one: uvloop's, on which replicas run, descend from nothing of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        asyncio.get_running_loop().call_later(self._sign_period_s, self._sign)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._free.set()
        self._lost.set()

    def data_received(self, data: bytes) -> None:
        self._back += data
        while len(self._back) >= NUMBER_BYTES:
            self.unread.add(int.from_bytes(self._back[:NUMBER_BYTES], "big"))
            del self._back[:NUMBER_BYTES]

    def pause_writing(self) -> None:
        self._free.clear()

    def resume_writing(self) -> None:
        self._free.set()

    async def hang_up(self) -> None:
        """End the connection, whatever was still to go."""
        if self._transport is not None:
            self._transport.abort()
            await self._lost.wait()

    async def write(self, data: bytes) -> None:
        """Write `data` with whatever else this turn of the loop brings."""
        if not self._free.is_set():
            await self._free.wait()
        if self.closed:
            raise StreamBroken("The ingress is gone.")
        if not self._held:
            asyncio.get_running_loop().call_soon(self._flush)
        self._held.append(data)

    def _flush(self) -> None:
        if self._transport is not None and not self.closed:
            self._transport.write(b"".join(self._held))
        self._held.clear()

    def _sign(self) -> None:
        """Show that this replica is alive, now and again later."""
        if self.closed:
            return
        if self._transport is not None and self._free.is_set() and not self._held:
            self._transport.write(SIGN_OF_LIFE)
        asyncio.get_running_loop().call_later(self._sign_period_s, self._sign)


def _is_over(task: asyncio.Task[_Line]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None or task.result().closed)


async def _connected(address: Address) -> _Line:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(_CONNECT_LIMIT_S):
        transport, line = await loop.create_connection(lambda: _Line(address.sign_period_s), address.host, address.port)
    transport.write(address.greeting)
    return line
