"""Asks tiers over HTTP whether they are ready."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import aiohttp
import orjson

from shared.clock import Clock

_PAUSE_S = 0.05
_SLOW_PAUSE_S = 0.5
_EAGER_LOOKS = 200
_ANSWER_LIMIT_S = 5.0
_ANSWER_BYTES = 1024 * 1024


class Probe:
    """Polls ready routes: often in the first seconds, then twice a second."""

    def __init__(self, session: aiohttp.ClientSession, clock: Clock) -> None:
        self._session = session
        self._clock = clock

    async def until_ready(self, url: str, is_ready: Callable[[bytes], bool]) -> None:
        """Return once `url` answers 200 with a body that `is_ready` accepts."""
        looks = 0
        while True:
            status, body = await self.look(url)
            if status == 200 and is_ready(body):
                return
            looks += 1
            await self._clock.sleep(_PAUSE_S if looks < _EAGER_LOOKS else _SLOW_PAUSE_S)

    async def until_known(self, router_url: str, tier: str, *, limit_s: float) -> bool:
        """Wait until the router at `router_url` lists a ready backend of `tier`; False when `limit_s` passed.

        A router that asks for a key does not tell: then there is nothing to wait for.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while True:
                    status, body = await self.look(f"{router_url}/fleet/v1/backends")
                    if status in (401, 403, 404) or (status == 200 and _has_ready(body, tier)):
                        return True
                    await self._clock.sleep(_PAUSE_S)
        return False

    async def look(self, url: str) -> tuple[int, bytes]:
        """Status and body of one GET; status 0 where nobody answers."""
        timeout = aiohttp.ClientTimeout(total=_ANSWER_LIMIT_S)
        try:
            async with self._session.get(url, timeout=timeout, allow_redirects=False) as response:
                return response.status, await response.content.read(_ANSWER_BYTES)
        except (aiohttp.ClientError, TimeoutError, OSError):
            return 0, b""


def _has_ready(body: bytes, tier: str) -> bool:
    zones = ("cloud",) if tier == "cloud" else ("device", "site")
    try:
        backends = orjson.loads(body)["backends"]
        return any(each["zone"] in zones and each["state"] == "ready" for each in backends)
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return False
