"""A backend on bare sockets: answers are ready-made bytes, so that one core feeds whatever is measured in front of it.

    python -m loadtests.bench.wire_backend [--port 9000] [--tokens 32] [--interval-ms 0]

A streamed answer has `tokens` content events, each an HTTP chunk of its own. Without an interval all are written at
once; with one, an event goes out every `interval_ms` and its text is the monotonic clock in nanoseconds, so that a
reader on the same machine sees how late it comes.
"""

from __future__ import annotations

import asyncio
import time
from typing import cast

import orjson
import typer
import uvloop

from loadtests.bench.process import LISTEN_BACKLOG
from shared.fleet import BackendState, CloudCapacity
from shared.http.binding import bind
from shared.openai.sse import DONE
from shared.testing import answers

_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_HEAD_END = b"\r\n\r\n"


def _chunked(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)


def _whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def _capacity() -> bytes:
    capacity = CloudCapacity(model_id=answers.MODEL, state=BackendState.READY, replicas_ready=1, running=0, waiting=0)
    return orjson.dumps({"models": [capacity.model_dump(mode="json")]})


class Answers:
    """The bytes of every answer, made once."""

    def __init__(self, tokens: int, interval_ms: float) -> None:
        self.tokens = tokens
        self.interval_s = interval_ms / 1000
        events = [write.data for write in answers.stream(*[" token"] * tokens).writes]
        self.streamed = _STREAM_HEAD + b"".join(map(_chunked, events)) + _LAST_CHUNK
        self.opening = _STREAM_HEAD + _chunked(answers.chunk(role="assistant", content=""))
        self.closing = _chunked(answers.chunk(finish="stop")) + _chunked(DONE) + _LAST_CHUNK
        self.whole = _whole(answers.completion(" token" * tokens).writes[0].data)
        self.capacity = _whole(_capacity())


class Connection(asyncio.Protocol):
    """One connection; a client sends its next request after an answer, never before."""

    def __init__(self, ready: Answers) -> None:
        self._ready = ready
        self._received = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class has no common base

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        received = self._received = self._received + data
        end = received.find(_HEAD_END)
        if end < 0 or self._transport is None:
            return
        if received.startswith(b"GET "):
            self._received = b""
            self._transport.write(self._ready.capacity)
            return
        start = received.lower().index(b"content-length:") + 15
        size = int(received[start : received.index(b"\r\n", start)])
        if len(received) < end + len(_HEAD_END) + size:
            return
        self._received = b""
        if b'"stream":true' not in received:
            self._transport.write(self._ready.whole)
        elif self._ready.interval_s == 0:
            self._transport.write(self._ready.streamed)
        else:
            self._transport.write(self._ready.opening)
            self._tell(self._ready.tokens)

    def _tell(self, left: int) -> None:
        """Write one event and come back for the others."""
        if self._transport is None:
            return
        if left == 0:
            self._transport.write(self._ready.closing)
            return
        self._transport.write(_chunked(answers.chunk(content=str(time.monotonic_ns()))))
        self._timer = asyncio.get_running_loop().call_later(self._ready.interval_s, self._tell, left - 1)


async def _serve(port: int, ready: Answers) -> None:
    listener = bind("127.0.0.1", port, setting="--port")
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(ready), sock=listener, backlog=LISTEN_BACKLOG)
    async with server:
        await server.serve_forever()


def main(port: int = 0, tokens: int = 32, interval_ms: float = 0.0) -> None:
    """Serve on 127.0.0.1 until the process is ended."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(port, Answers(tokens, interval_ms)))


if __name__ == "__main__":
    typer.run(main)
