"""The short way of the routes that carry all traffic: no routing table on the way in, one write on the way out.

aiohttp's server reads requests, keeps connections and cancels handlers as ever. What is left out is what these routes
never use, and what each request paid for: a walk through the routing table, signals, cookies, compression, payloads,
and separate steps for head and body.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import SERVER_SOFTWARE
from aiohttp.typedefs import Middleware

Handle = Callable[[Any], Awaitable[web.StreamResponse]]
"""Takes a request; the library's server and its applications disagree about the request's class."""
DIRECT: web.AppKey[Mapping[str, Handle]] = web.AppKey("direct", Mapping)
"""Handlers of POST by path. The application has routes for them too."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""What no header may hold (RFC 9110, 5.5): a line's end above all."""
_LAST_CHUNK = b"0\r\n\r\n"


def directly(app: Handle, handlers: Mapping[str, Handle], middlewares: Sequence[Middleware]) -> Handle:
    """A handler that takes POSTs for the paths of `handlers` there, through the middlewares, and whatever else to
    `app`."""
    wrapped = {path: _within(middlewares, handler) for path, handler in handlers.items()}

    def handle(request: web.Request) -> Awaitable[web.StreamResponse]:
        if request.method == "POST" and (direct := wrapped.get(request.rel_url.raw_path)) is not None:
            # Who waits for leave to send the body gets it from the application.
            return app(request) if "Expect" in request.headers else direct(request)
        return app(request)

    return handle


class DirectResponse(web.StreamResponse):
    """An answer whose head leaves together with the first bytes of its body, joined by hand.

    `body` is all of it; None: what `write` and `write_eof` are given, in chunks.
    """

    def __init__(self, *, status: int = 200, headers: Mapping[str, str], body: bytes | None = None) -> None:
        super().__init__(status=status, headers=headers)
        self._whole = body
        self._head = b""

    def begin(self, request: web.BaseRequest) -> None:
        """Commit status and headers; they leave with what is sent first. Raises ValueError: a header holds a control
        character."""
        if self._payload_writer is None and not self._eof_sent:
            self._must_be_empty_body = request.method == "HEAD"
            self._head = self._head_for(request)
            self._payload_writer, self._req = request.writer, request

    def put(self, data: bytes) -> None:
        """Send a piece without waiting. Raises ConnectionResetError: the client has left."""
        self._send(_chunk(data) if self._chunked and data else data)

    @property
    def is_held_up(self) -> bool:
        """Whether the client has not read yet what was sent to it."""
        writer = self._payload_writer
        return writer is not None and writer.transport is not None and writer.transport.get_write_buffer_size() > 0

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        if self._payload_writer is None and not self._eof_sent:
            await request._prepare_hook(self)  # what the application adds to each answer on the long way
        self.begin(request)
        return request.writer

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send a piece, and wait while the client reads slowly. Raises ConnectionResetError once it has left."""
        if data:
            self.put(bytes(data))
        if self._payload_writer is not None:
            await self._payload_writer.drain()

    async def write_eof(self, data: bytes | bytearray | memoryview = b"") -> None:
        """End the answer, with its last piece."""
        writer = self._payload_writer
        if self._eof_sent or writer is None:
            return
        last = bytes(data) if self._whole is None else self._whole
        if self._chunked:
            last = _chunk(last) + _LAST_CHUNK if last else _LAST_CHUNK
        self._send(last)
        self._eof_sent = True
        await writer.drain()
        self._req = self._payload_writer = None

    def _send(self, data: bytes) -> None:
        writer = self._payload_writer
        if writer is None or self._eof_sent:
            raise RuntimeError("write before prepare, or after the end")
        if self._must_be_empty_body:
            data = b""
        if self._head:
            data, self._head = self._head + data, b""
        transport = writer.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client has left")
        if data:
            writer.output_size += len(data)  # by this others know that an answer has begun
            self._body_length += len(data)
            transport.write(data)

    def _head_for(self, request: web.BaseRequest) -> bytes:
        """Status line and headers."""
        is_11 = request.version >= HttpVersion11
        keep_alive = request.keep_alive if self._keep_alive is None else self._keep_alive
        lines = [f"HTTP/1.{1 if is_11 else 0} {self.status} {self.reason}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        if self._whole is not None:
            lines.append(f"Content-Length: {len(self._whole)}")
        elif is_11:
            self._chunked = True
            lines.append("Transfer-Encoding: chunked")
        else:
            keep_alive = False  # nothing but the end of the connection says where the body ends
        self._keep_alive = keep_alive
        lines.append(f"Date: {rfc822_formatted_time()}")
        lines.append(f"Server: {SERVER_SOFTWARE}")
        if keep_alive != is_11:
            lines.append("Connection: keep-alive" if keep_alive else "Connection: close")
        if _CONTROL.search("".join(lines)):
            raise ValueError("a header holds a control character")
        lines.append("\r\n")
        return "\r\n".join(lines).encode()


def _within(middlewares: Sequence[Middleware], handler: Handle) -> Handle:
    for middleware in reversed(middlewares):
        handler = partial(middleware, handler=handler)
    return handler


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
