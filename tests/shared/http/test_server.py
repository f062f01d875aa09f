"""What is no HTTP gets the OpenAI envelope too, and none of it comes back or into the log."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import orjson
import pytest
from aiohttp import web

from shared.http.server import Runner


@pytest.fixture
async def port() -> AsyncIterator[int]:
    runner = Runner(web.Application(), access_log=None)
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
