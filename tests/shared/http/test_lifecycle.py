"""UP-01: a signal lets running streams end and refuses new work; a second signal ends at once."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from collections.abc import Callable

import aiohttp
import pytest
from aiohttp import web

from shared import logs
from shared.errors import SettingsError
from shared.http import errors
from shared.http.binding import bind
from shared.http.events import break_stream, open_stream
from shared.http.lifecycle import Lifecycle, serve
from shared.openai.envelope import error_event
from shared.openai.sse import DONE

_EVENT = b'data: {"choices":[]}\n\n'


class Server:
    """A streaming server under `serve`, whose streams go on until `finish` is set."""

    def __init__(self, drain_limit_s: float) -> None:
        self.lifecycle = Lifecycle()
        self.finish = asyncio.Event()
        app = web.Application(middlewares=[errors.middleware("test")])
        app.router.add_get("/stream", self._stream)
        self._listener = bind("127.0.0.1", 0, setting="test.port")
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.ended = asyncio.create_task(
            serve(app, self._listener, self.lifecycle, component="test", drain_limit_s=drain_limit_s)
        )

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        with self.lifecycle.request():
            response = await open_stream(request, {})
            await response.write(_EVENT)
            expired = asyncio.create_task(self.lifecycle.expired.wait())
            finish = asyncio.create_task(self.finish.wait())
            try:
                await asyncio.wait({expired, finish}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                expired.cancel()
                finish.cancel()
            if self.finish.is_set():
                await response.write(DONE)
            else:
                await break_stream(response, error_event(SettingsError("the time to drain is over")))
            return response


@pytest.fixture(autouse=True)
def quiet() -> None:
    logs.configure(stream=io.StringIO())


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def _open(server: Server, client: aiohttp.ClientSession) -> aiohttp.ClientResponse:
    answer = await client.get(f"{server.url}/stream")
    assert await answer.content.readexactly(len(_EVENT)) == _EVENT
    return answer


async def _signalled(server: Server) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await _until(lambda: server.lifecycle.draining)


async def test_up_01_a_running_stream_ends_with_done_and_new_work_is_refused(client: aiohttp.ClientSession) -> None:
    server = Server(drain_limit_s=60)
    stream = await _open(server, client)
    await _signalled(server)
    async with client.get(f"{server.url}/stream") as refused:
        assert refused.status == 503
        assert (await refused.json())["error"]["code"] == "draining"
        assert "Retry-After" in refused.headers
        assert refused.headers["Connection"] == "close"
    server.finish.set()
    assert await stream.read() == DONE
    assert await server.ended == 0
    assert server.lifecycle.in_flight == 0


async def test_up_01_at_the_limit_the_stream_gets_one_error_event(client: aiohttp.ClientSession) -> None:
    server = Server(drain_limit_s=0.05)
    stream = await _open(server, client)
    await _signalled(server)
    rest = await stream.read()
    assert rest.startswith(b'data: {"error"')
    assert b"[DONE]" not in rest
    assert await server.ended == 0


async def test_up_01_a_second_signal_ends_at_once(client: aiohttp.ClientSession) -> None:
    server = Server(drain_limit_s=3600)
    stream = await _open(server, client)
    await _signalled(server)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await server.ended == 130
    with pytest.raises(aiohttp.ClientError):
        await stream.read()


async def test_an_idle_server_ends_at_the_first_signal(client: aiohttp.ClientSession) -> None:
    server = Server(drain_limit_s=3600)
    async with client.get(f"{server.url}/") as answer:
        assert answer.status == 404
    os.kill(os.getpid(), signal.SIGINT)
    assert await server.ended == 0


async def test_a_client_that_leaves_is_counted_out() -> None:
    lifecycle = Lifecycle()
    with pytest.raises(asyncio.CancelledError), lifecycle.request():
        assert lifecycle.in_flight == 1
        raise asyncio.CancelledError
    assert lifecycle.in_flight == 0
    assert await lifecycle.drain(1)


def test_a_taken_port_is_one_clear_line() -> None:
    taken = bind("127.0.0.1", 0, setting="router.port")
    port = taken.getsockname()[1]
    try:
        with pytest.raises(SettingsError) as caught:
            bind("127.0.0.1", port, setting="router.port")
    finally:
        taken.close()
    assert caught.value.message == f"Port {port} on 127.0.0.1 is already in use. Choose another with router.port."
    assert caught.value.param == "router.port"


def test_an_address_of_another_machine_is_one_clear_line() -> None:
    with pytest.raises(SettingsError, match=r"192\.0\.2\.1"):
        bind("192.0.2.1", 0, setting="edge.host")
