"""What is no HTTP gets the OpenAI envelope too, and none of it comes back or into the log."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import orjson
import pytest
from aiohttp import web

from shared.http import errors
from shared.http.direct import DIRECT
from shared.http.server import Runner


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server with a plain route and one of the short way, both of which answer with what they were sent."""

    async def echo(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"got " + await request.read())

    app = web.Application(middlewares=[errors.middleware("test")])
    app.router.add_post("/plain", echo)
    app.router.add_post("/short", echo)
    app[DIRECT] = {"/short": echo}
    runner = Runner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield runner.addresses[0][1]
    await runner.cleanup()


async def _spoken_to(port: int, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    received = await reader.read()
    writer.close()
    return received


@pytest.mark.parametrize(
    "sent",
    [
        b"sk-secret-canary 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nsk-secret-canary\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"sk-secret-canary" * 4000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: sk-secret-canary\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nsk-secret-canary",
        b"\x16\x03\x01\x02\x00sk-secret-canary",
        b"GET /sk-secret-canary HTTP/9.9\r\n\r\n",
    ],
)
async def test_what_cannot_be_parsed_is_refused_without_being_quoted(
    port: int, sent: bytes, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    received = await asyncio.wait_for(_spoken_to(port, sent), 5)
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 ")) and b"application/json" in head
    error = orjson.loads(body)["error"]
    assert error["code"] == "malformed_http" and error["type"] == "invalid_request_error"
    assert b"canary" not in received and "canary" not in caplog.text
    out, err = capfd.readouterr()
    assert "canary" not in out + err


async def test_a_client_that_says_nothing_is_no_error(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)):
        await asyncio.sleep(0)


def _expecting(
    route: bytes, *expected: bytes, version: bytes = b"1.1", close: bytes = b"Connection: close\r\n"
) -> bytes:
    lines = b"".join(b"Expect: %b\r\n" % each for each in expected)
    return b"POST %b HTTP/%b\r\nHost: a\r\n%b%bContent-Length: 2\r\n\r\nhi" % (route, version, close, lines)


@pytest.mark.parametrize("route", [b"/plain", b"/short", b"/nowhere"])
@pytest.mark.parametrize(
    "expected",
    [
        [b"\xff\xfesk-secret-canary"],
        [b"sk-secret-canary"],
        [b"\xc3\xa9"],
        [b"100-continue, sk-secret-canary"],
        [b"100-continue", b"sk-secret-canary"],
        [b"", b"sk-secret-canary"],
        [b"100-continue;q=1"],
        [b'"'],
    ],
)
async def test_what_nobody_can_expect_is_417(
    port: int, route: bytes, expected: list[bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    """On every route, known or not, in the envelope, and without a word of the header."""
    received = await asyncio.wait_for(_spoken_to(port, _expecting(route, *expected, close=b"")), 5)
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 417 ") and b"application/json" in head and b"x-request-id: req-" in head
    error = orjson.loads(body)["error"]
    assert (error["code"], error["type"], error["param"]) == ("expectation_failed", "invalid_request_error", "expect")
    assert b"canary" not in received and "canary" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("route", [b"/plain", b"/short"])
@pytest.mark.parametrize("expected", [b"100-continue", b"100-Continue", b"  100-CONTINUE\t"])
async def test_leave_to_send_is_given(port: int, route: bytes, expected: bytes) -> None:
    received = await asyncio.wait_for(_spoken_to(port, _expecting(route, expected)), 5)
    assert received.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK") and received.endswith(b"got hi")


@pytest.mark.parametrize("route", [b"/plain", b"/short"])
@pytest.mark.parametrize(("expected", "version"), [(b"", b"1.1"), (b"\xff", b"1.0"), (b"100-continue", b"1.0")])
async def test_an_expectation_that_says_nothing_is_passed_over(
    port: int, route: bytes, expected: bytes, version: bytes
) -> None:
    received = await asyncio.wait_for(_spoken_to(port, _expecting(route, expected, version=version)), 5)
    assert received.startswith(b"HTTP/%b 200 OK" % version) and received.endswith(b"got hi")
