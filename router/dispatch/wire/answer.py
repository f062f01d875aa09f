"""One answer, read as it comes: its head, then whatever bytes of its body are there, in one piece a wake-up.

An answer belongs to one request and is never used again; the connection under it may be, once all of the answer came
and nothing else did. That one tenant's bytes never reach another rests on this.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from router.dispatch.wire.errors import Cut, TooLong

MOST_HELD_BYTES = 64 * 1024
"""What waits for its reader beyond this stops the connection until it was read."""
MOST_HEAD_BYTES = 64 * 1024
"""Longest head, trailers included, and longest run of bytes that bring nothing of a body."""
_PIECE_BYTES = 256 * 1024
"""A large request is written in such pieces, so that one upload does not hold the event loop."""
_BODILESS = frozenset({204, 304})


class Line(Protocol):
    """The connection under an answer."""

    can_write: bool
    """Whether what was written before has mostly gone."""

    def write(self, data: bytes | memoryview) -> None:
        """Send more of the request."""

    def hold(self) -> None:
        """Read no more for now."""

    def go_on(self) -> None:
        """Read again."""

    def part(self, *, reusable: bool) -> None:
        """The answer lets go: keep the connection for another request, or end it at once."""


class _Rubbish(Exception):
    """Stops the parser: what comes cannot be part of this answer."""


class Answer:
    """Use: `begun`, then `status`, `header` and `read` or `whole`, and `release` in any case."""

    __slots__ = (
        "_error",
        "_head_bytes",
        "_headers",
        "_held_bytes",
        "_idle_bytes",
        "_is_held",
        "_is_spoilt",
        "_keeps",
        "_line",
        "_loop",
        "_parser",
        "_pieces",
        "_unsent",
        "_until_close",
        "_waiter",
        "ended",
        "on_body",
        "status",
    )

    def __init__(self, line: Line, loop: asyncio.AbstractEventLoop, unsent: memoryview | None = None) -> None:
        """`unsent` is the rest of the request, which `begun` writes."""
        self.status = 0
        """0 until the head is there."""
        self.ended = False
        """Whether all of it came."""
        self._line: Line | None = line
        self._loop = loop
        self._unsent = unsent
        self._headers: dict[bytes, bytes] = {}
        self._pieces: list[bytes] = []
        self.on_body = self._pieces.append
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._keeps = self._until_close = self._is_held = self._is_spoilt = False
        self._head_bytes = self._held_bytes = self._idle_bytes = 0
        self._parser: HttpResponseParser | None = HttpResponseParser(self)

    # What its reader calls.

    async def begun(self) -> None:
        """Send what is left of the request, unless it is answered before, and wait for status and headers.

        Raises:
            Cut: the connection ended, or what came is no HTTP. What `fail` was given.
        """
        if self._unsent is not None:
            await self._send_rest()
        while not self.status:
            if self._error is not None:
                raise self._error
            await self._changed()

    def header(self, name: str) -> str | None:
        """The first value of a header; `name` in lower case."""
        value = self._headers.get(name.encode())
        return None if value is None else value.decode("latin-1").strip()

    async def read(self) -> bytes:
        """All bytes that are there, or the next that come; empty at the end.

        Raises:
            Cut: the connection ended before the answer did. What `fail` was given.
        """
        pieces = self._pieces
        while not pieces:
            if self._error is not None:
                raise self._error
            if self.ended:
                return b""
            await self._changed()
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._held_bytes = 0
        if self._is_held:
            self._is_held = False
            if self._line is not None:
                self._line.go_on()
        return data

    async def whole(self, limit_bytes: int) -> bytes:
        """The body. Raises TooLong: it has more than `limit_bytes`; else as `read`."""
        body = await self.read()
        if self.ended and not self._pieces and len(body) <= limit_bytes:
            return body
        chunks, size = [body], len(body)
        while body and size <= limit_bytes:
            body = await self.read()
            chunks.append(body)
            size += len(body)
        if size > limit_bytes:
            self.fail(error := TooLong("The answer is longer than the limit."))
            raise error
        return b"".join(chunks)

    def fail(self, error: Exception) -> None:
        """End it from here, unless all of it came: who waits gets `error`, and the connection ends at once, which stops
        the backend's work."""
        if not self.ended and self._error is None:
            self._error = error
            self._part(reusable=False)
            self._wake()

    def release(self) -> None:
        """Let go; safe to call twice. The connection is kept if all of the answer came and nothing else did."""
        is_clean = self.ended and self._keeps and not self._is_spoilt and self._error is None and self._unsent is None
        self._part(reusable=is_clean)
        if not self.ended and self._error is None:
            self._error = Cut("The answer was let go.")
        self._wake()

    # What the connection calls.

    def take(self, data: bytes) -> None:
        """Bytes came."""
        parser, pieces = self._parser, self._pieces
        if self.ended or parser is None:
            self._is_spoilt = True
            return
        before = len(pieces)
        try:
            parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            self._is_spoilt = True  # more came than the answer, or it is none
            self.fail(Cut("What the backend sent is no HTTP answer."))
        if len(pieces) > before:
            self._idle_bytes = 0
            self._held_bytes += len(data)
            if self._held_bytes > MOST_HELD_BYTES and not self._is_held and not self.ended and self._line is not None:
                self._is_held = True
                self._line.hold()
        else:
            self._idle_bytes += len(data)
            if self._idle_bytes > MOST_HEAD_BYTES:
                self.fail(Cut("The backend sends no answer but much else."))
        self._wake()

    def can_write_again(self) -> None:
        """What was written has mostly gone."""
        self._wake()

    def lost(self, error: Exception | None) -> None:
        """The connection ended; without `error` in an orderly way, which is the end of an answer that has no other."""
        self._line = self._parser = None
        if not self.ended and self._error is None:
            if self.status and self._until_close and error is None:
                self.ended = True
            else:
                self._error = Cut("The connection ended before the answer did.")
        self._wake()

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self.ended:
            raise _Rubbish

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MOST_HEAD_BYTES:
            raise _Rubbish
        if not self.status:  # what comes later are trailers, which nobody asked for
            self._headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code() if self._parser is not None else 0
        if status < 100 or status == 101:
            raise _Rubbish
        if status < 200:
            return
        headers = self._headers
        encoding = headers.get(b"transfer-encoding")
        if encoding is None:
            self._until_close = b"content-length" not in headers and status not in _BODILESS
        elif encoding.strip().lower() != b"chunked":
            raise _Rubbish  # no other was offered
        self.status = status

    def on_message_complete(self) -> None:
        if not self.status:  # a 1xx: the answer is still to come
            self._headers.clear()
            return
        self.ended = True
        self._keeps = self._parser is not None and self._parser.should_keep_alive()

    # Its own.

    async def _send_rest(self) -> None:
        while self._unsent is not None and not self.status and self._error is None and self._line is not None:
            if not self._line.can_write:
                await self._changed()
                continue
            self._line.write(self._unsent[:_PIECE_BYTES])
            self._unsent = self._unsent[_PIECE_BYTES:] or None
            await asyncio.sleep(0)

    async def _changed(self) -> None:
        waiter = self._waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _part(self, *, reusable: bool) -> None:
        line, self._line, self._parser = self._line, None, None
        if line is not None:
            line.part(reusable=reusable)
