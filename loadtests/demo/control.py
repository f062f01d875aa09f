"""Client of the control socket of `isthmus up`: state of the tiers, killing and starting one."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp

from shared.errors import IsthmusError

_HOST = "http://up"
_LIMIT = aiohttp.ClientTimeout(total=30)


class Control:
    """The launcher of one running stack."""

    def __init__(self, socket: Path) -> None:
        self._http = aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket)), timeout=_LIMIT)

    async def __aenter__(self) -> Control:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.close()

    async def state(self) -> dict[str, Any] | None:
        """What the launcher says of its run, or None where none answers."""
        try:
            async with self._http.get(f"{_HOST}/state") as response:
                if response.status != 200:
                    return None
                state: dict[str, Any] = await response.json()
                return state
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None

    async def kill(self, tier: str) -> None:
        """End `tier` and keep it down."""
        await self._post(f"/tiers/{tier}/kill")

    async def start(self, tier: str) -> None:
        """Let a killed `tier` start again."""
        await self._post(f"/tiers/{tier}/start")

    async def restart_heat(self) -> None:
        """Begin the scenario of a run with simulated heat."""
        await self._post("/heat/restart")

    async def _post(self, path: str) -> None:
        try:
            async with self._http.post(f"{_HOST}{path}") as response:
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError):
            status = 0
        if status not in (200, 202, 204):
            raise IsthmusError(f"The launcher of the stack did not do POST {path} (status {status}).")
