"""Heartbeats of an edge agent that a test plays: sent to a real router until the block ends, then one that drains.

async with Upstream() as upstream, Beats(router_url, upstream.url) as beats:
    await beats.change(level=ThermalLevel.CRITICAL)     # sent before it returns
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Self

import aiohttp

from shared.fleet import BackendState, Heartbeat, ServedModel, ThermalLevel
from shared.testing import answers

_PERIOD_S = 0.3


class Beats:
    """One instance of an agent; `fields` are those of `Heartbeat`, over an idle, cool agent with one model."""

    def __init__(self, router_url: str, backend_url: str, *, backend_id: str = "edge-scripted", **fields: Any) -> None:
        self._router_url = router_url
        self._sequence = 0
        self._fields: dict[str, Any] = {
            "backend_id": backend_id,
            "instance": secrets.token_hex(8),
            "url": backend_url,
            "state": BackendState.READY,
            "models": (ServedModel(model_id=answers.MODEL, context_tokens=8192),),
            "level": ThermalLevel.NOMINAL,
            "slots_total": 2,
            "slots_busy": 0,
            "queued": 0,
            "queue_limit": 16,
            "prefill_tokens_per_s": 1000.0,
            "decode_tokens_per_s": 100.0,
            **fields,
        }
        self._sending = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5))
        try:
            await self._send()
        except BaseException:
            await self._http.close()
            raise
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            await self.change(state=BackendState.DRAINING)
        except aiohttp.ClientError:
            pass  # the router has gone before its agent: nobody is left to tell
        finally:
            await self._http.close()

    async def change(self, **fields: Any) -> None:
        """Report `fields` from now on; the first such report has been taken when this returns."""
        self._fields |= fields
        await self._send()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_PERIOD_S)
            await self._send()

    async def _send(self) -> None:
        async with self._sending:
            self._sequence += 1
            beat = Heartbeat(**self._fields, sequence=self._sequence)
            body = beat.model_dump_json().encode()
            headers = {"Content-Type": "application/json"}
            url = f"{self._router_url}/fleet/v1/heartbeats"
            async with self._http.post(url, data=body, headers=headers) as response:
                response.raise_for_status()
