"""The ingress' side of direct streams: it listens for replicas, and hands each stream's events to whoever reads it."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

from cloud.direct.frames import GREETING_BYTES, NUMBER_BYTES, Malformed, Reader
from shared.errors import StreamBroken

_LAST_LIMIT_S = 5.0
_SIGNS_IN_SILENCE = 4
"""Signs of life that a replica gives in the time after which its silence means that it is gone."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a replica sends the events of one stream. It travels inside the call, on Serve's own way."""

    host: str
    port: int
    greeting: bytes
    """Known to this ingress and to those it calls."""
    sign_period_s: float
    """How often a replica shows on its connection that it is alive."""
    stream: int


@dataclass(frozen=True, slots=True)
class Sent:
    """What a replica says when it has written a stream: how many events, and what came last that was none."""

    events: int
    item: Any = None


class Inbox:
    """What one stream brings, as it arrives. Nothing but the answer's own limit bounds it: engines do not wait."""

    def __init__(self) -> None:
        self.line: object | None = None
        """The connection that its events arrive on; None until the first has."""
        self._items: deque[Any] = deque()
        self._arrived = 0
        self._sent: Sent | None = None
        self._ended = False
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    def put(self, event: bytes) -> None:
        """One more event."""
        self._items.append(event)
        self._arrived += 1
        self._settle()
        self._wake()

    def sent(self, sent: Sent) -> None:
        """All is on its way, or here."""
        self._sent = sent
        self._settle()

    def end(self) -> None:
        """All has arrived."""
        self._ended = True
        self._wake()

    def fail(self, error: BaseException) -> None:
        """Nothing more comes, because of `error`; what has arrived is still read."""
        if not self._ended and self._error is None:
            self._error = error
            self._wake()

    async def items(self) -> AsyncGenerator[Any, None]:
        """What arrives until the end; raises what `fail` was given."""
        while True:
            while self._items:
                yield self._items.popleft()
            if self._ended:
                return
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def _settle(self) -> None:
        """The item that is no event stands behind all events, whichever way was faster."""
        if self._sent is not None and self._sent.item is not None and self._arrived >= self._sent.events:
            self._items.append(self._sent.item)
            self._sent = None
            self.end()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Receiver:
    """Listens on `host` for the replicas that this ingress has called; who does not know its greeting is hung up on.

    A process that dies closes its connections. A machine that is lost closes nothing: after `silence_s` without a sign
    of life its streams break too.
    """

    def __init__(self, host: str, silence_s: float) -> None:
        self._host = host
        self._silence_s = silence_s
        self._greeting = secrets.token_bytes(GREETING_BYTES)
        self._inboxes: dict[int, Inbox] = {}
        self._numbers = itertools.count(1)
        self._lines: set[_Line] = set()
        self._starting = asyncio.Lock()
        self._server: asyncio.Server | None = None

    async def stream(self, call: Callable[[Address], Awaitable[Sent]]) -> AsyncGenerator[Any, None]:
        """Events that a replica sends for `call`, and behind them the item that came with its result.

        `call` is given the address to send to, and gives its result once all events are on their way. It is cancelled
        when the reader leaves.

        Raises:
            StreamBroken: the connection ended before the stream did.
            Exception: whatever `call` raises.
        """
        port = await self._listen()
        number, inbox = next(self._numbers), Inbox()
        self._inboxes[number] = inbox
        address = Address(self._host, port, self._greeting, self._silence_s / _SIGNS_IN_SILENCE, number)
        calling = asyncio.ensure_future(call(address))
        calling.add_done_callback(lambda done: _settle(done, inbox))
        try:
            async for item in inbox.items():
                yield item
        finally:
            del self._inboxes[number]
            if not calling.done():
                calling.cancel()
                await asyncio.gather(calling, return_exceptions=True)

    async def close(self) -> None:
        """Listen no longer, and hang up on every replica."""
        if self._server is not None:
            self._server.close()
            for line in self._lines:
                line.hang_up()
            await self._server.wait_closed()

    async def _listen(self) -> int:
        async with self._starting:
            if self._server is None:
                loop = asyncio.get_running_loop()
                self._server = await loop.create_server(lambda: _Line(self, self._silence_s), self._host, 0)
            return int(self._server.sockets[0].getsockname()[1])

    def reader(self) -> Reader:
        """What cuts a new connection into frames."""
        return Reader(self._greeting)

    def opened(self, line: _Line) -> None:
        """Somebody has connected."""
        self._lines.add(line)

    def give(self, number: int, event: bytes, line: _Line) -> None:
        """`event` to whoever reads the stream; nobody does once the client has left, and then the replica is told."""
        if (inbox := self._inboxes.get(number)) is None:
            if event:
                line.refuse(number)
            return
        inbox.line = line
        if event:
            inbox.put(event)
        else:
            inbox.end()

    def lost(self, line: _Line) -> None:
        """Nothing more comes on `line`."""
        self._lines.discard(line)
        for inbox in self._inboxes.values():
            if inbox.line is line:
                inbox.fail(StreamBroken("The replica is gone."))


class _Line(asyncio.Protocol):
    """One connection of a replica, on which the events of all its streams arrive."""

    def __init__(self, receiver: Receiver, silence_s: float) -> None:
        self._receiver = receiver
        self._silence_s = silence_s
        self._frames = receiver.reader()
        self._transport: asyncio.Transport | None = None
        self._heard_s = 0.0
        self._suspected = False
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # or uvloop's, which descends from nothing of asyncio's
        self._receiver.opened(self)
        self._heard_s = asyncio.get_running_loop().time()
        self._look()

    def data_received(self, data: bytes) -> None:
        self._heard_s, self._suspected = asyncio.get_running_loop().time(), False
        try:
            for number, event in self._frames.feed(data):
                self._receiver.give(number, event, self)
        except Malformed:
            self.hang_up()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._receiver.lost(self)

    def refuse(self, number: int) -> None:
        """Nobody reads this stream: a call that was cancelled as it began may have begun all the same."""
        if self._transport is not None:
            self._transport.write(number.to_bytes(NUMBER_BYTES, "big"))

    def hang_up(self) -> None:
        """End the connection, whatever was still to come."""
        if self._transport is not None:
            self._transport.abort()

    def _look(self) -> None:
        """Hang up after too long a silence; not at the first look, for it may be this loop that has slept."""
        loop = asyncio.get_running_loop()
        left_s = self._heard_s + self._silence_s - loop.time()
        if left_s <= 0 and self._suspected:
            self.hang_up()
            return
        self._suspected = left_s <= 0
        self._watch = loop.call_later(max(left_s, self._silence_s / _SIGNS_IN_SILENCE), self._look)


def _settle(calling: asyncio.Future[Sent], inbox: Inbox) -> None:
    """What the end of the call means for its stream."""
    if calling.cancelled():
        inbox.fail(StreamBroken("The call was cancelled."))
    elif (error := calling.exception()) is not None:
        inbox.fail(error)
    else:
        inbox.sent(calling.result())
        # The replica has written all of it: what is not here soon was lost on the way.
        asyncio.get_running_loop().call_later(_LAST_LIMIT_S, inbox.fail, StreamBroken("The stream has no end."))
