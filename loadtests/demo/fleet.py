"""Waits until the router sees the fleet in a given state, by asking it, never by sleeping and hoping."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp

from shared.errors import IsthmusError

_PAUSE_S = 0.1
_STALE_AFTER_MS = 3_000
"""The router's default for `policy.stale_after_ms`."""
_ZONES = {"edge": ("device", "site"), "cloud": ("cloud",)}
Backends = list[dict[str, Any]]


class Fleet:
    """The backends as the router at `base_url` knows them."""

    def __init__(self, http: aiohttp.ClientSession, base_url: str) -> None:
        self._http = http
        self._url = f"{base_url}/fleet/v1/backends"

    async def backends(self, tier: str) -> Backends | None:
        """Backends of `tier`, or None where the router does not say."""
        try:
            async with self._http.get(self._url) as response:
                if response.status != 200:
                    return None
                return [b for b in (await response.json())["backends"] if b["zone"] in _ZONES[tier]]
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None

    async def wait(self, tier: str, holds: Callable[[Backends], bool], what: str, limit_s: float) -> None:
        """Return once `holds` for the backends of `tier`.

        Raises:
            IsthmusError: `limit_s` seconds passed first.
        """
        await until(lambda: self._look(tier, holds), what, limit_s)

    async def _look(self, tier: str, holds: Callable[[Backends], bool]) -> bool:
        backends = await self.backends(tier)
        return backends is not None and holds(backends)


async def until(look: Callable[[], Awaitable[bool]], what: str, limit_s: float) -> None:
    """Return once `look` says yes; `what` completes the sentence of the error if it does not within `limit_s`."""
    try:
        async with asyncio.timeout(limit_s):
            while True:
                if await look():
                    return
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        raise IsthmusError(f"After {limit_s:g} s {what}.") from None


def any_usable(backends: Backends) -> bool:
    """Whether one of them takes new work."""
    return any(is_usable(backend) for backend in backends)


def none_usable(backends: Backends) -> bool:
    """Whether none of them takes new work."""
    return not any_usable(backends)


def is_usable(backend: Mapping[str, Any]) -> bool:
    """Whether this backend is ready, heard of lately, cool enough, and not left alone by the breaker."""
    return (
        backend["state"] == "ready"
        and backend["level"] != "critical"
        and backend["breaker"] != "open"
        and (backend["age_ms"] is None or backend["age_ms"] <= _STALE_AFTER_MS)
    )


def is_cool(backends: Backends) -> bool:
    """Whether the ladder is down to where a sensor may be taken away without holding a level."""
    return all(backend["level"] not in ("hot", "critical") for backend in backends)
