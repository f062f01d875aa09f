"""One connection to a backend: carries one request and its answer at a time, and nothing between them."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import cast

from router.dispatch.wire.answer import Answer

_AT_ONCE_BYTES = 64 * 1024
"""Up to this size a body leaves in one write with its head."""


class Connection(asyncio.Protocol):
    """Use: `ask` while it `is_free`; the answer gives it back through `on_free`, or ends it. `on_lost` hears of its
    end."""

    __slots__ = ("_answer", "_loop", "_on_free", "_on_lost", "_poll", "_transport", "can_write", "idle_since_s")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_free: Callable[[Connection], None],
        on_lost: Callable[[Connection], None],
    ) -> None:
        self._loop = loop
        self._on_free = on_free
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._poll: select.poll | None = None
        self.can_write = True
        self.idle_since_s = 0.0

    @property
    def is_free(self) -> bool:
        """Whether it stands and carries nothing."""
        return self._answer is None and self._transport is not None and not self._transport.is_closing()

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to read. On a free connection that could only be its end, or bytes that belong to
        no request; the event loop has perhaps not seen them yet."""
        return self._poll is not None and not self._poll.poll(0)

    def ask(self, head: bytes, body: bytes) -> Answer:
        """Send a request. Its answer, to which all bytes that come belong from now on until it lets go."""
        transport = self._transport
        if transport is None or self._answer is not None:
            raise RuntimeError("this connection is not free")
        at_once = len(body) <= _AT_ONCE_BYTES
        answer = self._answer = Answer(self, self._loop, None if at_once else memoryview(body))
        transport.write(head + body if at_once else head)
        return answer

    def end(self) -> None:
        """End it at once."""
        answer, self._answer = self._answer, None
        if self._transport is not None:
            self._transport.abort()
        if answer is not None:
            answer.lost(ConnectionAbortedError())

    # What an answer calls.

    def write(self, data: bytes | memoryview) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def hold(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def go_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def part(self, *, reusable: bool) -> None:
        self._answer = None
        transport = self._transport
        # What was written and has not left yet belongs to the request that is over.
        if reusable and self.is_free and transport is not None and transport.get_write_buffer_size() == 0:
            self._on_free(self)
        else:
            self.end()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class has no common base
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.end()  # nothing was asked: these bytes belong to nobody
        else:
            self._answer.take(data)

    def pause_writing(self) -> None:
        self.can_write = False

    def resume_writing(self) -> None:
        self.can_write = True
        if self._answer is not None:
            self._answer.can_write_again()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._poll = None
        answer, self._answer = self._answer, None
        self._on_lost(self)
        if answer is not None:
            answer.lost(exc)
