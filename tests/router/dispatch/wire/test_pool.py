"""Connections that are used again: only clean ones, never one that holds bytes of somebody else's answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from router.dispatch.wire import pool as pool_module
from router.dispatch.wire.errors import ConnectTimeout, Cut, Unreachable, Unsendable
from router.dispatch.wire.pool import Pool
from shared.testing.certificates import Authority
from tests.router.conftest import eventually
from tests.router.dispatch.wire.raw_backend import RawBackend, answered

_EVIL = answered(b"of somebody else")
_PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@contextlib.asynccontextmanager
async def new_pool(**settings: Any) -> AsyncIterator[Pool]:
    pool = Pool(**{"tls": _PLAIN, "connect_s": 5.0, **settings})
    yield pool
    await pool.close()
    assert pool.open_connections == 0


async def ask(pool: Pool, url: str, body: bytes = b"mine") -> bytes:
    answer = await pool.post(url, {}, body)
    try:
        await answer.begun()
        return await answer.whole(1 << 24)
    finally:
        answer.release()


async def test_one_connection_serves_one_request_after_another() -> None:
    async with RawBackend() as backend, new_pool() as pool:
        assert [await ask(pool, backend.url, b"%d" % n) for n in range(5)] == [b"%d" % n for n in range(5)]
        assert len(backend.writers) == 1 == pool.open_connections
        assert len(set(backend.heads)) == 1 and backend.heads[0].startswith(b"POST /v1/x HTTP/1.1\r\nHost: 127.0.0.1:")


async def test_requests_at_the_same_time_have_connections_of_their_own() -> None:
    async with RawBackend() as backend, new_pool() as pool:
        tags = [b"%d" % n for n in range(20)]
        for _ in range(3):
            assert await asyncio.gather(*(ask(pool, backend.url, tag) for tag in tags)) == tags
        assert len(backend.writers) <= 20


@pytest.mark.parametrize("how", ["FIN", "RST", "bytes"])
@pytest.mark.parametrize("seen", [True, False], ids=["seen", "not seen yet"])
async def test_a_kept_connection_that_ended_or_speaks_is_not_used(how: str, seen: bool) -> None:
    """FO-01, MT-01: also where the event loop had no turn in which to see it."""
    async with RawBackend() as backend, new_pool() as pool:
        assert await ask(pool, backend.url) == b"mine"
        [writer] = backend.writers
        sock: socket.socket = writer.get_extra_info("socket")
        if how == "bytes":
            writer.write(_EVIL)
        elif how == "FIN":
            sock.shutdown(socket.SHUT_WR)
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        if seen or how == "RST":
            await eventually(lambda: pool.open_connections == 0)
        assert await ask(pool, backend.url, b"other") == b"other"
        assert len(backend.writers) == 2


async def test_rubbish_behind_an_answer_reaches_nobody() -> None:
    """MT-01: a backend that answers twice, in one write and in two, whole and chunked."""

    async def twice(body: bytes, writer: asyncio.StreamWriter) -> bool:
        if body.endswith(b"1"):
            writer.write(answered(body, chunked=body.endswith(b"11")) + _EVIL)
        else:
            writer.write(answered(body))
            await writer.drain()
            writer.write(_EVIL[:7])
        return True

    async with RawBackend(twice) as backend, new_pool() as pool:
        for n in range(20):
            assert await ask(pool, backend.url, b"%d" % n) == b"%d" % n


async def test_an_old_connection_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_LOOK_S", 0.01)
    async with RawBackend() as backend, new_pool(idle_s=0.02) as pool:
        await ask(pool, backend.url)
        await eventually(lambda: pool.open_connections == 0)
        assert await ask(pool, backend.url) == b"mine"


async def test_a_backend_that_closes_after_each_answer() -> None:
    async def once(body: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + body)
        return False

    async with RawBackend(once) as backend, new_pool() as pool:
        for n in range(3):
            assert await ask(pool, backend.url, b"%d" % n) == b"%d" % n
        assert len(backend.writers) == 3


async def _cancelled_everywhere(serving: ssl.SSLContext | None, trusting: ssl.SSLContext) -> None:
    """Cancel one request after each number of turns of the loop, and let others use what it leaves."""

    async def slowly(body: bytes, writer: asyncio.StreamWriter) -> bool:
        whole = answered(body * 10, chunked=body[-1:] in b"02468")
        for start in range(0, len(whole), 11):
            writer.write(whole[start : start + 11])
            await asyncio.sleep(0)
        return True

    async with RawBackend(slowly, serving) as backend, new_pool(tls=trusting) as pool:
        for turns in range(60):
            mine = asyncio.create_task(ask(pool, backend.url, b"cancelled %d" % turns))
            beside = asyncio.create_task(ask(pool, backend.url, b"beside %d" % turns))
            for _ in range(turns):
                await asyncio.sleep(0)
            mine.cancel()
            after = [asyncio.create_task(ask(pool, backend.url, b"after %d.%d" % (turns, n))) for n in range(3)]
            [ended] = await asyncio.gather(mine, return_exceptions=True)
            assert isinstance(ended, asyncio.CancelledError) or ended == b"cancelled %d" % turns * 10
            assert await beside == b"beside %d" % turns * 10
            assert await asyncio.gather(*after) == [b"after %d.%d" % (turns, n) * 10 for n in range(3)]
        assert pool.open_connections <= 6


@pytest.fixture
def contexts(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """What a backend serves with, and what trusts it."""
    authority = Authority(tmp_path)
    pair = authority.pair("server")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(pair.cert, pair.key)
    return serving, ssl.create_default_context(cafile=authority.ca)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
def test_a_request_that_is_cancelled_anywhere_leaves_nothing_behind(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], is_tls: bool, run: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    """MT-01: at every point at which a request can be left, the next one gets its own answer."""
    serving, trusting = contexts
    run(_cancelled_everywhere(serving if is_tls else None, trusting))


async def test_a_request_that_is_cancelled_while_connecting_leaves_no_connection() -> None:
    async with RawBackend() as backend, new_pool() as pool:
        for turns in range(12):
            task = asyncio.create_task(pool.post(backend.url, {}, b""))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            [ended] = await asyncio.gather(task, return_exceptions=True)
            if not isinstance(ended, BaseException):
                ended.release()
        await eventually(lambda: pool.open_connections <= 1)  # one whose answer had come by then is kept


async def test_a_client_that_leaves_is_seen_by_the_backend_at_once() -> None:
    """SSE-03."""
    left = asyncio.Event()

    async def endless(body: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        with contextlib.suppress(OSError):
            while not writer.transport.is_closing():
                writer.write(b"1\r\nx\r\n")
                await asyncio.sleep(0.01)
        left.set()
        return False

    async with RawBackend(endless) as backend, new_pool() as pool:
        answer = await pool.post(backend.url, {}, b"")
        await answer.begun()
        assert await answer.read()
        answer.release()
        async with asyncio.timeout(1):
            await left.wait()


async def test_a_slow_reader_slows_the_backend() -> None:
    """SSE-10: what the backend may send is bounded by buffers, not by what it has."""
    sent = 0

    async def flood(body: bytes, writer: asyncio.StreamWriter) -> bool:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 << 20))
        for _ in range(64 << 4):
            writer.write(b"x" * (64 << 10))
            await writer.drain()
            sent += 64 << 10
        return True

    async with RawBackend(flood) as backend, new_pool() as pool:
        answer = await pool.post(backend.url, {}, b"")
        await answer.begun()
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.1)
        assert sent < 32 << 20
        received = 0
        while data := await answer.read():
            received += len(data)
            assert len(data) < 1 << 20
        assert received == 64 << 20
        answer.release()


async def test_a_large_body_arrives_whole() -> None:
    body = bytes(range(256)) * 16_384
    async with RawBackend() as backend, new_pool() as pool:
        assert await ask(pool, backend.url, body) == body
        assert await ask(pool, backend.url) == b"mine"
        assert len(backend.writers) == 1


async def test_an_early_error_stops_the_upload() -> None:
    """The answer is given on although the backend never took the body, and its connection is not used again."""

    async with new_pool() as pool:
        got: list[int] = []

        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")
            with contextlib.suppress(OSError):
                while data := await reader.read(1 << 20):
                    got.append(len(data))
            writer.close()

        async with await asyncio.start_server(refuse, "127.0.0.1", 0, limit=1024) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            answer = await pool.post(url, {}, bytes(64 << 20))
            await answer.begun()
            assert answer.status == 413 and await answer.whole(10) == b"{}"
            answer.release()
            await eventually(lambda: pool.open_connections == 0)
        assert sum(got) < 64 << 20


async def test_a_reset_in_the_middle_is_a_cut() -> None:
    async def reset(body: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhello")
        await writer.drain()
        await asyncio.sleep(0.02)
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        return False

    async with RawBackend(reset) as backend, new_pool() as pool:
        with pytest.raises(Cut):
            await ask(pool, backend.url)


async def test_nobody_listens() -> None:
    async with RawBackend() as backend:
        url = backend.url
    async with new_pool() as pool:
        with pytest.raises(Unreachable):
            await ask(pool, url)
        with pytest.raises(Unreachable):
            await ask(pool, "http://no-such-host.invalid/")
        with pytest.raises(Unsendable):
            await ask(pool, "http://h/?a")
        with pytest.raises(Unsendable):
            await pool.post(url, {"X": "a\r\nb: c"}, b"")


async def test_who_does_not_shake_hands_is_given_up() -> None:
    """FO-06: the limit on connecting covers the TLS handshake."""
    async with RawBackend() as silent, new_pool(connect_s=0.1) as pool:
        with pytest.raises(ConnectTimeout):
            await ask(pool, silent.url.replace("http:", "https:"))


async def test_tls_is_checked(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    """An authority that is not trusted, and a name that the certificate does not have."""
    serving, trusting = contexts
    async with RawBackend(tls=serving) as backend:
        async with new_pool(tls=trusting) as pool:
            for n in range(3):
                assert await ask(pool, backend.url, b"%d" % n) == b"%d" % n
            assert len(backend.writers) == 1
            with pytest.raises(Unreachable):
                await ask(pool, backend.url.replace("127.0.0.1", "127.0.0.2"))
        async with new_pool(tls=ssl.create_default_context()) as pool:
            with pytest.raises(Unreachable):
                await ask(pool, backend.url)


async def test_a_host_is_looked_up_once_for_all_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, asked = asyncio.get_running_loop(), []
    real = loop.getaddrinfo

    async def counted(host: str, port: int, **more: Any) -> Any:
        asked.append(host)
        return await real("127.0.0.1", port, **more)

    monkeypatch.setattr(loop, "getaddrinfo", counted)
    async with RawBackend() as backend, new_pool() as pool:
        url = backend.url.replace("127.0.0.1", "backend.test")
        first = asyncio.create_task(ask(pool, url))
        others = [asyncio.create_task(ask(pool, url)) for _ in range(5)]
        await asyncio.sleep(0)
        first.cancel()
        assert await asyncio.gather(*others) == [b"mine"] * 5
        assert asked == ["backend.test"]
        await backend.__aexit__()
        await eventually(lambda: pool.open_connections == 0)
        with pytest.raises(Unreachable):
            await ask(pool, url)
        with pytest.raises(Unreachable):
            await ask(pool, url)  # an address at which nobody answered is asked for again
        assert len(asked) == 2
