"""Asks tiers over HTTP whether they are ready."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import orjson

from shared.clock import Clock
from shared.errors import SettingsError
from shared.http.tls import PinnedTls
from shared.launcher.tiers import AT_REST
from shared.local_keys import local_key

if TYPE_CHECKING:
    import aiohttp

_PAUSE_S = 0.05
_SLOW_PAUSE_S = 0.5
_EAGER_LOOKS = 200
_ANSWER_LIMIT_S = 5.0
_ANSWER_BYTES = 1024 * 1024


class Probe:
    """Polls ready routes: often in the first seconds, then twice a second.

    The HTTP library is loaded at the first look: the tiers are under way by then, and load theirs meanwhile.
    """

    def __init__(self, clock: Clock, tls: PinnedTls | None = None) -> None:
        """`tls` is how addresses of https are reached."""
        self._session: aiohttp.ClientSession | None = None
        self._clock = clock
        self._tls = tls

    async def close(self) -> None:
        """Close what is open. Safe to call twice."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

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
        """Wait until the router at `router_url` lists an askable backend of `tier`; False when `limit_s` passed.

        A router that asks for a key, and left none for this home, does not tell: then there is nothing to wait for.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while True:
                    key = local_key(router_url, "commands")
                    status, body = await self.look(f"{router_url}/fleet/v1/backends", key=key)
                    if status in (401, 403, 404) or (status == 200 and _has_one_at_rest(body, tier)):
                        return True
                    await self._clock.sleep(_PAUSE_S)
        return False

    async def asks_for_key(self, router_url: str) -> bool:
        """Whether the router turns away who comes without a key."""
        status, _ = await self.look(f"{router_url}/v1/models")
        return status == 401

    async def look(self, url: str, *, key: str | None = None) -> tuple[int, bytes]:
        """Status and body of one GET; status 0 where nobody answers."""
        import aiohttp  # noqa: PLC0415 - see the class

        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_LIMIT_S))
        headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        try:
            tls = self._tls.context() if self._tls is not None and url.startswith("https://") else True
            async with self._session.get(url, headers=headers, allow_redirects=False, ssl=tls) as response:
                return response.status, await response.content.read(_ANSWER_BYTES)
        except (aiohttp.ClientError, TimeoutError, OSError, SettingsError):
            return 0, b""  # a certificate that is being replaced is looked at again


def _has_one_at_rest(body: bytes, tier: str) -> bool:
    zones = ("cloud",) if tier == "cloud" else ("device", "site")
    try:
        backends = orjson.loads(body)["backends"]
        return any(each["zone"] in zones and each["state"] in AT_REST for each in backends)
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return False
