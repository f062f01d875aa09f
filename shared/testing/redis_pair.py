"""A Redis and its replica behind one name, and what a failover does to them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Self

from shared.testing.redis_server import RedisServer
from shared.testing.toxics import ToxicProxy

_LIMIT_S = 10.0


class RedisPair:
    """`old` is the primary at first, and `name` means it; `new` is its replica. Connections through the name stay where
    they lead when it comes to mean another."""

    def __init__(self) -> None:
        self.old, self.new = RedisServer(), RedisServer()

    async def __aenter__(self) -> Self:
        self.old.start()
        self.new.start()
        follow(self.new, self.old)
        self.name = await ToxicProxy(self.old.url).__aenter__()
        await self.replicated()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.name.__aexit__(*exc_info)
        self.old.stop()
        self.new.stop()

    @property
    def url(self) -> str:
        """The name, as an address of Redis."""
        return self.name.url.replace("http://", "redis://")

    def promote(self) -> None:
        """The replica becomes the primary, and the name means it from now on."""
        self.new.command("REPLICAOF", "NO", "ONE")
        self.name.move(self.new.url)

    def demote(self, *, follows: bool = False) -> None:
        """The old one becomes a replica: of the new one, or of one that it does not reach, so that it grows stale."""
        self.old.command("REPLICAOF", "127.0.0.1", str(self.new.port) if follows else "1")

    async def swap(self) -> None:
        """Fail over without a loss; the two have changed their parts then."""
        await self.replicated()
        self.promote()
        self.demote(follows=True)
        self.old, self.new = self.new, self.old
        await self.replicated()

    async def replicated(self) -> None:
        """Return once the replica has all that the primary has."""
        await until(lambda: b"master_link_status:up" in self.new.command("INFO", "replication"))
        await until(lambda: offset(self.old) == offset(self.new))


def follow(replica: RedisServer, primary: RedisServer) -> None:
    """Let one be the replica of another."""
    replica.command("REPLICAOF", "127.0.0.1", str(primary.port))


def offset(server: RedisServer) -> int:
    """How far its history of changes reaches."""
    said = server.command("INFO", "replication").decode()
    name = "slave_repl_offset:" if "role:slave" in said else "master_repl_offset:"
    return int(said.split(name)[1].split("\r\n")[0])


def connections(server: RedisServer) -> int:
    """Connections of clients, but for the one that asks."""
    return server.command("CLIENT", "LIST", "TYPE", "normal").count(b" addr=") - 1


async def until(condition: Callable[[], bool], limit_s: float = _LIMIT_S) -> None:
    """Return once `condition` holds; a server that cuts the connection that asks is asked again."""
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:
        with contextlib.suppress(OSError):
            if condition():
                return
        await asyncio.sleep(0.02)
    raise TimeoutError("the condition did not come about")
