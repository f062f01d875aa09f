"""A backend that does what a test's script says and remembers everything that reached it.

    async with Upstream() as upstream:
        upstream.script(answers.failure(429, headers={"Retry-After": "7"}), answers.stream("Pa", "ris"))
        ...                                     # two requests to upstream.url + "/v1/chat/completions"
        assert upstream.exchanges[1].body == b"..."

Each POST takes the next scripted answer; with none left `upstream.default` decides (a short good answer, streamed
when the body says `"stream": true`). It also serves `/healthz`, `/readyz`, `/v1/models` and `/ops/capacity`, which
take no script. `upstream.connections` has every TCP connection, also those on which nothing was ever asked.
`refuse()` turns the port into one that refuses connections, and `accept()` back.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Self

import orjson
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from shared.fleet import BackendState, CloudCapacity
from shared.testing import answers
from shared.testing.answers import Answer, End

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_DEADLINE_S = 10.0


@dataclass(slots=True)
class Connection:
    """One accepted TCP connection and the requests it carried, as `METHOD path`."""

    requests: list[str] = field(default_factory=list)

    @property
    def is_control(self) -> bool:
        """Whether it carried probes and capacity polls alone: an unused connection is not one of those."""
        return bool(self.requests) and all(line.startswith("GET ") for line in self.requests)


@dataclass(slots=True)
class Exchange:
    """One POST: what came, when, and how far the answer got. Times are seconds of the backend's clock."""

    path: str
    headers: CIMultiDictProxy[str]
    body: bytes
    connection: Connection
    arrived_s: float
    tokens_sent: int = 0
    finished: bool = False
    """The whole script was carried out."""
    left_s: float | None = None
    """When the client's leaving was noticed; None while it stays."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_ended(self, deadline_s: float = _DEADLINE_S) -> None:
        """Return once the answer is over, whichever side ended it; TimeoutError after `deadline_s`."""
        async with asyncio.timeout(deadline_s):
            await self.ended.wait()


Responder = Callable[[Exchange], Answer]


def good_answer(exchange: Exchange) -> Answer:
    """A short correct answer, streamed if the request asks for it."""
    wants_stream = orjson.loads(exchange.body).get("stream") is True
    return answers.stream("Pa", "ris", ".") if wants_stream else answers.completion("Paris.")


class Upstream:
    """The scripted backend on a free loopback port. Every wait in a script goes through `sleep`."""

    def __init__(
        self,
        *,
        models: tuple[str, ...] = (answers.MODEL,),
        default: Responder = good_answer,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.models = models
        self.default = default
        self.exchanges: list[Exchange] = []
        self.connections: list[Connection] = []
        self.capacity = [
            CloudCapacity(model_id=model, state=BackendState.READY, replicas_ready=1, running=0, waiting=0)
            for model in models
        ]
        self._script: deque[Answer] = deque()
        self._arrival = asyncio.Condition()
        self._sleep = sleep
        self._now_s = now_s
        self._of_protocol: dict[asyncio.BaseProtocol, Connection] = {}
        self._socket = _bound(0)
        self._port: int = self._socket.getsockname()[1]
        self._server: asyncio.Server | None = None
        self._runner = web.AppRunner(self._app(), handler_cancellation=True, access_log=None, shutdown_timeout=0.2)

    @property
    def url(self) -> str:
        """Base address, without a trailing slash and without `/v1`."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def inference_connections(self) -> list[Connection]:
        """Connections that were not for probes and capacity polls alone."""
        return [connection for connection in self.connections if not connection.is_control]

    def script(self, *scripted: Answer) -> None:
        """Append answers for the POSTs to come."""
        self._script.extend(scripted)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await self.accept()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._close_listener()
        await self._runner.cleanup()

    async def accept(self) -> None:
        """Listen (again)."""
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._connected, sock=self._socket, backlog=1024)

    async def refuse(self) -> None:
        """Reset every open connection and refuse new ones; the port stays ours."""
        self._reset_connections()
        self._close_listener()
        self._socket = _bound(self._port)

    def forget(self) -> None:
        """Reset every open connection and drop what was recorded, so that the next test starts from nothing."""
        self._reset_connections()
        self.exchanges.clear()
        self.connections.clear()

    async def wait_exchanges(self, count: int, deadline_s: float = _DEADLINE_S) -> list[Exchange]:
        """The exchanges once there are `count`; TimeoutError after `deadline_s`."""
        async with asyncio.timeout(deadline_s), self._arrival:
            await self._arrival.wait_for(lambda: len(self.exchanges) >= count)
        return self.exchanges

    def _reset_connections(self) -> None:
        for protocol in self._of_protocol:
            transport = getattr(protocol, "transport", None)
            if transport is not None:
                _reset(transport)
        self._of_protocol.clear()

    def _close_listener(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server = None
        self._socket.close()

    def _connected(self) -> asyncio.BaseProtocol:
        server = self._runner.server
        if server is None:
            raise RuntimeError("the backend has been stopped")
        protocol = server()
        connection = Connection()
        self.connections.append(connection)
        self._of_protocol[protocol] = connection
        return protocol

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_get("/{path:.*}", self._control)
        app.router.add_post("/{path:.*}", self._answer)
        return app

    def _note(self, request: web.Request) -> Connection:
        connection = self._of_protocol.get(request.protocol) or Connection()  # none: reset meanwhile
        connection.requests.append(f"{request.method} {request.path}")
        return connection

    async def _control(self, request: web.Request) -> web.Response:
        self._note(request)
        bodies: dict[str, object] = {
            "/healthz": {"status": "ok"},
            "/readyz": {"status": "ready"},
            "/v1/models": {"object": "list", "data": [{"id": model, "object": "model"} for model in self.models]},
            "/ops/capacity": {"models": [model.model_dump(mode="json") for model in self.capacity]},
        }
        if (body := bodies.get(request.path)) is None:
            raise web.HTTPNotFound
        return web.Response(body=orjson.dumps(body), content_type="application/json")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        exchange = Exchange(
            path=request.path,
            headers=CIMultiDictProxy(CIMultiDict(request.headers)),
            body=await request.read(),
            connection=self._note(request),
            arrived_s=self._now_s(),
        )
        async with self._arrival:
            self.exchanges.append(exchange)
            self._arrival.notify_all()
        try:
            answer = self._script.popleft() if self._script else self.default(exchange)
            response = await self._perform(request, exchange, answer)
            exchange.finished = True
            return response
        except (asyncio.CancelledError, ConnectionError):
            exchange.left_s = self._now_s()
            raise
        finally:
            exchange.ended.set()

    async def _perform(self, request: web.Request, exchange: Exchange, answer: Answer) -> web.StreamResponse:
        await self._wait(answer.headers_after_s)
        response = web.StreamResponse(status=answer.status or 200, headers=answer.headers)
        if answer.status is not None:
            await response.prepare(request)
        for write in answer.writes:
            await self._wait(write.after_s)
            await response.write(write.data)
            exchange.tokens_sent += write.tokens
            await asyncio.sleep(0)  # so that the next write is a write of its own
        await _ENDINGS[answer.end](request, response)
        return response

    async def _wait(self, seconds: float) -> None:
        if seconds > 0:
            await self._sleep(seconds)


async def _end_clean(_: web.Request, response: web.StreamResponse) -> None:
    await response.write_eof()


async def _end_cut(request: web.Request, _: web.StreamResponse) -> None:
    if request.transport is not None:
        request.transport.close()


async def _end_reset(request: web.Request, _: web.StreamResponse) -> None:
    if request.transport is not None:
        _reset(request.transport)


async def _end_stall(_: web.Request, __: web.StreamResponse) -> None:
    await asyncio.Event().wait()


_ENDINGS: dict[End, Callable[[web.Request, web.StreamResponse], Awaitable[None]]] = {
    End.CLEAN: _end_clean,
    End.CUT: _end_cut,
    End.RESET: _end_reset,
    End.STALL: _end_stall,
}


def _reset(transport: asyncio.BaseTransport) -> None:
    """Close at once with RST instead of FIN."""
    sock: socket.socket | None = transport.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    if isinstance(transport, asyncio.WriteTransport):
        transport.abort()


def _bound(port: int) -> socket.socket:
    """A loopback socket that is bound and does not listen, so connecting to it is refused."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    bound.setblocking(False)
    return bound
