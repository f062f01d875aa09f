"""The short way through the server keeps what HTTP promises: versions, connections, slow readers, callers who leave."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from shared import logs
from shared.errors import InvalidRequest
from shared.http import errors
from shared.http.binding import bind
from shared.http.direct import DIRECT, DirectResponse
from shared.http.server import Runner

_PATH = "/v1/direct"
Serve = Callable[[Callable[[web.Request], Awaitable[web.StreamResponse]]], Awaitable[int]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serve one handler as a direct route; gives the port."""
    runners: list[Runner] = []

    async def start(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> int:
        app = web.Application(middlewares=[errors.middleware("test")])
        app.router.add_post(_PATH, handler)
        app[DIRECT] = {_PATH: handler}
        runner = Runner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        listener = bind("127.0.0.1", 0, setting="test.port")
        await web.SockSite(runner, listener).start()
        return int(listener.getsockname()[1])

    yield start
    for runner in runners:
        await runner.cleanup()


async def _whole(request: web.Request) -> web.StreamResponse:
    return DirectResponse(headers={"Content-Type": "text/plain"}, body=b"got " + await request.read())


async def _stream(request: web.Request) -> web.StreamResponse:
    response = DirectResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    for piece in (b"a", b"", b"bc"):
        await response.write(piece)
    await response.write_eof(b"d")
    return response


def _asked(head: str = "", body: str = "x", *, version: str = "1.1", method: str = "POST", path: str = _PATH) -> bytes:
    return f"{method} {path} HTTP/{version}\r\nHost: h\r\n{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


async def _answers(port: int, *requests: bytes) -> bytes:
    """All that comes for `requests` sent at once, until the server ends the connection or falls silent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"".join(requests))
    received = b""
    with contextlib.suppress(TimeoutError):
        limit_s = 10.0
        while data := await asyncio.wait_for(reader.read(65536), limit_s):
            received, limit_s = received + data, 0.2
        received += b"<end>"
    writer.close()
    return received


_CHUNKED = b"1\r\na\r\n2\r\nbc\r\n1\r\nd\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("handler", "version", "head", "line", "has", "end"),
    [
        (_whole, "1.1", "", b"HTTP/1.1 200 OK", b"Content-Length: 5", b"got x"),
        (_whole, "1.1", "Connection: close\r\n", b"HTTP/1.1 200 OK", b"Connection: close", b"got x<end>"),
        (_whole, "1.0", "", b"HTTP/1.0 200 OK", b"Content-Length: 5", b"got x<end>"),
        (_whole, "1.0", "Connection: keep-alive\r\n", b"HTTP/1.0 200 OK", b"Connection: keep-alive", b"got x"),
        (_stream, "1.1", "", b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked", _CHUNKED),
        (_stream, "1.1", "Connection: close\r\n", b"HTTP/1.1 200 OK", b"Connection: close", _CHUNKED + b"<end>"),
        (_stream, "1.0", "Connection: keep-alive\r\n", b"HTTP/1.0 200 OK", b"Content-Type", b"abcd<end>"),
    ],
)
async def test_versions_and_connections(
    serve: Serve,
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    version: str,
    head: str,
    line: bytes,
    has: bytes,
    end: bytes,
) -> None:
    answer = await _answers(await serve(handler), _asked(head, version=version))
    told, _, body = answer.partition(b"\r\n\r\n")
    lines = told.split(b"\r\n")
    assert lines[0] == line and body == end
    assert any(each.startswith(has) for each in lines)
    names = [each.partition(b":")[0].lower() for each in lines[1:]]
    assert len(names) == len(set(names)) and {b"date", b"server"} <= set(names)
    assert (b"transfer-encoding" in names) == (end.startswith(_CHUNKED))


async def test_one_connection_carries_many_requests_sent_at_once(serve: Serve) -> None:
    """Pipelined, whole and in order."""
    answer = await _answers(await serve(_whole), *(_asked(body=f"{n}") for n in range(4)))
    assert [part.partition(b"\r\n\r\n")[2] for part in answer.split(b"HTTP/1.1 200 OK")[1:]] == [
        b"got 0", b"got 1", b"got 2", b"got 3"
    ]  # fmt: skip


async def test_whatever_is_no_post_of_the_route_goes_the_long_way(serve: Serve) -> None:
    port = await serve(_whole)
    for request in (_asked(path="/v1/other"), _asked(path="/v1%2Fdirect")):
        assert b" 404 Not Found" in await _answers(port, request)
    for request in (_asked(method="GET"), _asked(method="PUT")):
        assert b" 405 Method Not Allowed" in await _answers(port, request)
    assert b"got x" in await _answers(port, _asked(path=_PATH + "?a=b"))


async def test_who_waits_for_leave_to_send_gets_it(serve: Serve) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", await serve(_whole))
    head, _, body = _asked("Expect: 100-continue\r\n").partition(b"\r\n\r\n")
    writer.write(head + b"\r\n\r\n")
    async with asyncio.timeout(5):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await reader.readuntil(b"got x")).startswith(b"HTTP/1.1 200 OK")
    writer.close()


async def test_errors_are_those_of_the_long_way(serve: Serve) -> None:
    async def fail(_: web.Request) -> web.StreamResponse:
        raise InvalidRequest("no")

    answer = await _answers(await serve(fail), _asked("x-request-id: mine\r\n"))
    assert answer.startswith(b"HTTP/1.1 400 ") and b"x-request-id: mine" in answer and b'"message":"no"' in answer


@pytest.mark.parametrize("evil", ["a\r\nX-Evil: 1", "a\n", "\0"])
async def test_a_header_cannot_write_a_line(serve: Serve, evil: str) -> None:
    logs.configure(stream=io.StringIO())

    async def tell(request: web.Request) -> web.StreamResponse:
        response = DirectResponse(headers={"X-A": evil}, body=b"")
        response.begin(request)
        return response

    answer = await _answers(await serve(tell), _asked())
    assert answer.startswith(b"HTTP/1.1 500 ") and b"Evil" not in answer


async def test_a_slow_reader_holds_the_writer_and_one_who_leaves_ends_it(serve: Serve) -> None:
    """SSE-03, SSE-10."""
    sent, left = 0, asyncio.Event()

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = DirectResponse(headers={})
        response.begin(request)
        try:
            while True:
                await response.write(b"x" * 65536)
                sent += 65536
                await asyncio.sleep(0)
        except (asyncio.CancelledError, ConnectionResetError):
            left.set()
            raise

    reader, writer = await asyncio.open_connection("127.0.0.1", await serve(flood), limit=1024)
    writer.write(_asked())
    assert await reader.read(1)
    before = -1
    while before != sent:
        before = sent
        await asyncio.sleep(0.1)
    assert sent < 32 << 20
    writer.transport.abort()
    async with asyncio.timeout(5):
        await left.wait()


async def test_after_the_first_byte_an_error_ends_the_connection(serve: Serve) -> None:
    async def fail(request: web.Request) -> web.StreamResponse:
        response = DirectResponse(headers={})
        response.begin(request)
        await response.write(b"begun")
        raise InvalidRequest("no")

    answer = await _answers(await serve(fail), _asked())
    assert answer.endswith(b"5\r\nbegun\r\n<end>") and answer.count(b"HTTP/1.1") == 1
