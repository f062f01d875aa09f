"""RV-07, RV-09: a body is read within its limit, and what is no JSON is refused by its headers alone."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web

from shared.http.intake import DEFAULT_LIMIT_BYTES, read_object, single_header

from .conftest import Serve

_LIMIT = 1024 * 1024
_JSON = {"Content-Type": "application/json"}


async def _read(request: web.Request) -> web.Response:
    raw, value = await read_object(request, limit_bytes=_LIMIT)
    return web.json_response({"bytes": len(raw), "keys": sorted(value)})


async def _chunks(total: int, size: int = 64 * 1024) -> AsyncIterator[bytes]:
    yield b'{"a": "'
    for _ in range(total // size):
        yield b"x" * size
    yield b'"}'


async def test_a_body_within_the_limit_is_read_whole(serve: Serve, client: aiohttp.ClientSession) -> None:
    url = await serve(_read)
    body = b'{"a": "' + b"x" * (_LIMIT - 9) + b'"}'
    async with client.post(url, data=body, headers=_JSON) as answer:
        assert (await answer.json())["bytes"] == _LIMIT
    async with client.post(url, data=_chunks(_LIMIT // 2), headers=_JSON) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("chunked", [False, True])
async def test_rv_07_a_huge_body_is_refused_without_being_held(
    serve: Serve, client: aiohttp.ClientSession, chunked: bool
) -> None:
    """50 MiB against a limit of 1 MiB: memory stays under twice the limit, and the server answers the next request."""
    url = await serve(_read)
    total = 50 * 1024 * 1024
    tracemalloc.start()
    try:
        status, answer = await _raw_post(url, total, chunked=chunked)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert status == 413
    assert b'"payload_too_large"' in answer
    assert peak < 2 * _LIMIT
    async with client.post(url, data=b"{}", headers=_JSON) as next_answer:
        assert next_answer.status == 200


async def _raw_post(url: str, total: int, *, chunked: bool) -> tuple[int, bytes]:
    """Send until the server stops taking it, as a hostile client would; the answer's status and bytes."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {total}"
    writer.write(f"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{framing}\r\n\r\n".encode())
    piece = b"x" * 65536
    sending = b"10000\r\n" + piece + b"\r\n" if chunked else piece

    async def send() -> None:
        for _ in range(total // len(piece)):
            writer.write(sending)
            await writer.drain()

    sender = asyncio.create_task(send())
    try:
        answer = await reader.read(65536)
        return int(answer.split(b" ")[1]), answer
    finally:
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)
        writer.transport.abort()


async def test_rv_07_nesting_is_a_client_error(serve: Serve, client: aiohttp.ClientSession) -> None:
    url = await serve(_read)
    async with client.post(url, data=b"[" * 100_000, headers=_JSON) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "deflate", "br", "zstd", "identity, gzip"])
async def test_rv_07_an_encoded_body_is_refused_unread(
    serve: Serve, client: aiohttp.ClientSession, encoding: str
) -> None:
    """A bomb of 50 MiB in 50 KB is never unpacked."""
    url = await serve(_read)
    bomb = gzip.compress(b"\x00" * 50 * 1024 * 1024)
    tracemalloc.start()
    try:
        async with client.post(url, data=bomb, headers={**_JSON, "Content-Encoding": encoding}) as answer:
            # A server below us may find the encoding broken first; either way nothing was unpacked.
            assert answer.status in (400, 415)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * DEFAULT_LIMIT_BYTES


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=utf-16",
        "application/jsonx",
        "text/json",
    ],
)
async def test_rv_09_another_content_type_is_415(
    serve: Serve, client: aiohttp.ClientSession, content_type: str
) -> None:
    url = await serve(_read)
    async with client.post(url, data=b"{}", headers={"Content-Type": content_type}) as answer:
        assert answer.status == 415
        assert (await answer.json())["error"]["param"] == "content-type"


async def test_rv_09_no_content_type_at_all_is_415(serve: Serve, client: aiohttp.ClientSession) -> None:
    url = await serve(_read)
    async with client.post(url, data=b"{}", skip_auto_headers=["Content-Type"]) as answer:
        assert answer.status == 415


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON; charset=UTF-8"]
)
async def test_json_in_utf_8_is_taken(serve: Serve, client: aiohttp.ClientSession, content_type: str) -> None:
    url = await serve(_read)
    async with client.post(url, data='{"ключ": "🦀"}'.encode(), headers={"Content-Type": content_type}) as answer:
        assert (await answer.json())["keys"] == ["ключ"]


@pytest.mark.parametrize("body", [b"", b"{", b'{"model": "m", "mess', '{"a": 1}'.encode("utf-16")])
async def test_rv_09_broken_json_is_400_in_the_openai_shape(
    serve: Serve, client: aiohttp.ClientSession, body: bytes
) -> None:
    url = await serve(_read)
    async with client.post(url, data=body, headers=_JSON) as answer:
        assert answer.status == 400
        assert set((await answer.json())["error"]) == {"message", "type", "param", "code"}


async def test_a_repeated_header_is_refused(serve: Serve, client: aiohttp.ClientSession) -> None:
    async def read(request: web.Request) -> web.Response:
        return web.json_response({"route": single_header(request, "x-isthmus-route")})

    url = await serve(read)
    async with client.get(url, headers=[("x-isthmus-route", "edge"), ("x-isthmus-route", "edge")]) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == "x-isthmus-route"
    async with client.get(url, headers={"x-isthmus-route": "edge"}) as answer:
        assert await answer.json() == {"route": "edge"}
    async with client.get(url) as answer:
        assert await answer.json() == {"route": None}


@pytest.mark.parametrize("sent", [b"", b'{"a": 1', b"garbage"])
async def test_who_announces_a_body_and_does_not_send_it_is_let_go(serve: Serve, sent: bytes) -> None:
    """A silent client would hold its place in the line of others for ever."""

    async def read(request: web.Request) -> web.Response:
        await read_object(request, limit_bytes=_LIMIT, limit_s=0.2)
        return web.Response()

    address = urlsplit(await serve(read))
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n"
    writer.write(head + sent)
    async with asyncio.timeout(30):
        answer = await reader.readuntil(b"\r\n\r\n")
    assert b" 400 " in answer
    writer.close()
