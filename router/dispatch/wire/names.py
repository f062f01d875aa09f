"""Looks up the addresses of a host: kept for ten seconds, and asked for once however many wait."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from functools import partial
from typing import Any

_KEPT_S = 10.0
_MOST_KEPT = 1024

Addresses = list[tuple[Any, ...]]
"""What `getaddrinfo` gives: family, kind, protocol, name, address."""


class Names:
    """Addresses by host and port."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._known: dict[tuple[str, int], tuple[Addresses, float]] = {}
        self._lookups: dict[tuple[str, int], asyncio.Task[Addresses]] = {}

    async def of(self, host: str, port: int) -> Addresses:
        """Where `host` listens, at least one address. Raises OSError or UnicodeError: it is not known."""
        if _is_address(host):
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        key = (host, port)
        known = self._known.get(key)
        if known is not None and known[1] > self._loop.time():
            return known[0]
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = self._lookups[key] = self._loop.create_task(self._look_up(host, port))
            lookup.add_done_callback(partial(self._noted, key))
        # Whoever stops waiting leaves the others their lookup.
        return await asyncio.shield(lookup)

    def forget(self, host: str, port: int) -> None:
        """Nobody answers there: ask anew next time."""
        self._known.pop((host, port), None)

    def close(self) -> None:
        """End lookups that run."""
        for lookup in list(self._lookups.values()):
            lookup.cancel()

    async def _look_up(self, host: str, port: int) -> Addresses:
        return list(await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))

    def _noted(self, key: tuple[str, int], lookup: asyncio.Task[Addresses]) -> None:
        self._lookups.pop(key, None)
        if lookup.cancelled() or lookup.exception() is not None:
            return
        if len(self._known) >= _MOST_KEPT:
            self._known.clear()
        self._known[key] = (lookup.result(), self._loop.time() + _KEPT_S)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
