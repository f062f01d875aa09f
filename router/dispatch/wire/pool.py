"""Keeps connections to backends for the next request, and makes new ones; redirects and proxies there are none."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping

from aiohappyeyeballs import start_connection

from router.dispatch.wire.address import Destination, Origin, destination_of
from router.dispatch.wire.answer import Answer
from router.dispatch.wire.connection import Connection
from router.dispatch.wire.errors import ConnectTimeout, Cut, Unreachable
from router.dispatch.wire.names import Names
from router.dispatch.wire.request import head_of

_NEXT_ADDRESS_S = 0.25
"""After so long without a connection the next address of a host is tried beside it (RFC 8305)."""
_LOOK_S = 1.0
_MOST_KNOWN = 4096
_LAST_TURNS = 16


class Pool:
    """Connections by origin, the one used last first."""

    def __init__(self, *, tls: ssl.SSLContext, connect_s: float, idle_s: float = 4.0) -> None:
        """`tls` is what https connections are made with. `connect_s` bounds looking up, connecting and the handshake
        together. `idle_s` is how long a connection is kept unused: for less than common servers do (uvicorn: 5 s), so
        that hardly any request meets one that is closing."""
        self._connect_s = connect_s
        self._idle_s = idle_s
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._names = Names(self._loop)
        self._destinations: dict[str, Destination] = {}
        self._idle: dict[Origin, deque[Connection]] = {}
        self._open: dict[Connection, Origin] = {}
        self._look: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def open_connections(self) -> int:
        """Connections that stand, used or not."""
        return len(self._open)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send `body` to `url`. The answer, whose head is still to come, and which the caller releases.

        Raises:
            Unsendable: address or headers cannot be written.
            Unreachable, ConnectTimeout, Cut: there is no connection.
        """
        destination = self._destinations.get(url) or self._read(url)
        head = head_of(destination.first_lines, headers, len(body))
        connection = self._idle_at(destination.origin) or await self._connected(destination.origin)
        return connection.ask(head, body)

    async def close(self) -> None:
        """End all connections."""
        self._is_closed = True
        if self._look is not None:
            self._look.cancel()
        self._names.close()
        self._idle.clear()
        for connection in list(self._open):
            connection.end()
        for _ in range(_LAST_TURNS):  # their transports, and those of TLS under them, say so in turns of the loop
            if not self._open:
                break
            await asyncio.sleep(0)

    def _read(self, url: str) -> Destination:
        destination = destination_of(url)
        if len(self._destinations) >= _MOST_KNOWN:
            self._destinations.clear()
        self._destinations[url] = destination
        return destination

    def _idle_at(self, origin: Origin) -> Connection | None:
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if self._is_good(connection):
                return connection
            connection.end()
        return None

    def _is_good(self, connection: Connection) -> bool:
        if not connection.is_free or self._loop.time() - connection.idle_since_s > self._idle_s:
            return False
        return connection.is_quiet

    async def _connected(self, origin: Origin) -> Connection:
        host, port, is_tls = origin
        try:
            async with asyncio.timeout(self._connect_s):
                addresses = await self._names.of(host, port)
                sock = await start_connection(
                    addresses, happy_eyeballs_delay=_NEXT_ADDRESS_S, interleave=1, loop=self._loop
                )
                _, connection = await self._loop.create_connection(
                    lambda: Connection(self._loop, self._freed, self._lost),
                    sock=sock,
                    ssl=self._tls if is_tls else None,
                    server_hostname=host.rstrip(".") if is_tls else None,
                )
        except TimeoutError:
            self._names.forget(host, port)
            raise ConnectTimeout("No connection could be made in time.") from None
        except (OSError, RuntimeError, UnicodeError):  # uvloop raises RuntimeError for some addresses
            self._names.forget(host, port)
            raise Unreachable("No connection could be made.") from None
        self._open[connection] = origin
        if not connection.is_free or self._is_closed:
            connection.end()
            raise Cut("The connection ended at once.")
        return connection

    def _freed(self, connection: Connection) -> None:
        origin = self._open.get(connection)
        if origin is None or self._is_closed:
            connection.end()
            return
        connection.idle_since_s = self._loop.time()
        idle = self._idle.get(origin)
        if idle is None:
            idle = self._idle[origin] = deque()
        idle.append(connection)
        if self._look is None:
            self._look = self._loop.call_later(min(_LOOK_S, self._idle_s), self._drop_old)

    def _lost(self, connection: Connection) -> None:
        self._open.pop(connection, None)

    def _drop_old(self) -> None:
        """End what was kept for too long; whoever listens there may end it at any moment."""
        before_s = self._loop.time() - self._idle_s
        for origin, idle in list(self._idle.items()):
            while idle and (idle[0].idle_since_s < before_s or not idle[0].is_free):
                idle.popleft().end()
            if not idle:
                del self._idle[origin]
        self._look = self._loop.call_later(min(_LOOK_S, self._idle_s), self._drop_old) if self._idle else None
