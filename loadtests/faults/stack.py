"""What a load test knows of the stack behind the tested address: its fleet, its launcher, its recorder."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp

from loadtests.demo.control import Control
from loadtests.recorder import FAULT_ROUTE, TALLY_ROUTE, WATCH_ROUTE
from loadtests.settings import LoadtestSettings
from loadtests.workload.canaries import Marker
from shared.errors import IsthmusError
from shared.launcher.preflight import SOCKET_NAME
from shared.launcher.settings import UpSettings
from shared.settings import load

_LIMIT = aiohttp.ClientTimeout(total=5)
Backends = list[dict[str, Any]]


class RecorderClient:
    """A running recorder."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self.url = url.rstrip("/")

    async def watch(self, marker: Marker) -> None:
        """Look for the canaries of this run from now on."""
        await self._post(WATCH_ROUTE, {"word": marker.word, "digits": marker.digits})

    async def fault(self, kind: str, *, for_s: float) -> None:
        """Let the cloud seem to suffer from `kind` for so long; `none` ends it."""
        await self._post(FAULT_ROUTE, {"kind": kind, "for_s": for_s})

    async def tally(self) -> dict[str, Any] | None:
        """What passed since the watch began, or None where nothing answers as a recorder does."""
        try:
            async with self._http.get(self.url + TALLY_ROUTE, timeout=_LIMIT) as response:
                body = await response.json() if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None
        return body if isinstance(body, dict) and "leaked_bytes" in body else None

    async def _post(self, route: str, body: dict[str, Any]) -> None:
        try:
            async with self._http.post(self.url + route, json=body, timeout=_LIMIT) as response:
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError):
            status = 0
        if status != 204:
            raise IsthmusError(f"The recorder did not do POST {route} (status {status}).")


@dataclass(frozen=True, slots=True)
class Stack:
    """The stack under test. `launched` is what the launcher says of its run, None where another started the stack."""

    http: aiohttp.ClientSession
    host: str
    headers: dict[str, str]
    control: Control
    launched: dict[str, Any] | None
    recorder: RecorderClient | None

    async def backends(self) -> Backends | None:
        """The fleet as the router knows it, or None where it does not say (no router, or a key without that right)."""
        return await _backends(self.http, self.host, self.headers)

    def tier(self, name: str) -> dict[str, Any] | None:
        """A tier that the launcher runs, if it does."""
        tier: dict[str, Any] | None = (self.launched or {}).get("tiers", {}).get(name)
        return tier


@contextlib.asynccontextmanager
async def stack_behind(settings: LoadtestSettings) -> AsyncIterator[Stack]:
    """What can be known of the stack behind `settings.host`.

    Raises:
        IsthmusError: the recorder that the settings name does not answer.
    """
    headers = {}
    if settings.api_key is not None:
        headers["Authorization"] = f"Bearer {settings.api_key.get_secret_value()}"
    host = settings.host.rstrip("/")
    async with aiohttp.ClientSession() as http, Control(load(UpSettings, "up").folder / SOCKET_NAME) as control:
        state = await control.state()
        ours = state is not None and str(state.get("endpoint")).removesuffix("/v1") == host
        recorder = await _recorder(http, settings, await _backends(http, host, headers) or [])
        yield Stack(http, host, headers, control, state if ours else None, recorder)


async def _recorder(
    http: aiohttp.ClientSession, settings: LoadtestSettings, backends: Backends
) -> RecorderClient | None:
    if settings.recorder is not None:
        named = RecorderClient(http, settings.recorder)
        if await named.tally() is None:
            raise IsthmusError("No recorder answers at the address in loadtest.recorder.")
        return named
    clouds = [backend for backend in backends if backend.get("zone") == "cloud"]
    found = [RecorderClient(http, str(backend["url"])) for backend in clouds]
    answers = await asyncio.gather(*(client.tally() for client in found))
    recording = [client for client, tally in zip(found, answers, strict=True) if tally is not None]
    # One cloud that is not recorded could have been sent anything.
    return recording[0] if len(recording) == len(clouds) == 1 else None


async def _backends(http: aiohttp.ClientSession, host: str, headers: dict[str, str]) -> Backends | None:
    try:
        async with http.get(f"{host}/fleet/v1/backends", headers=headers, timeout=_LIMIT) as response:
            if response.status != 200:
                return None
            body = await response.json()
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return None
    backends = body.get("backends") if isinstance(body, dict) else None
    return backends if isinstance(backends, list) else None
