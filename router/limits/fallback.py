"""Limits over all routers while Redis answers, and an equal share in each of them while it does not."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import replace

from router.limits.memory import MemoryLimiter
from router.limits.port import LEASE_MS, Demand, Standing
from router.limits.redis import RedisLimiter
from shared import logs
from shared.clock import Clock
from shared.errors import StateUnavailable


class SharedLimiter:
    """Asks Redis; without it, counts here. What runs is known here in either case, so that a Redis that comes back is
    told, and a share counts it too."""

    def __init__(self, shared: RedisLimiter, clock: Clock, *, lease_ms: int = LEASE_MS) -> None:
        self._shared = shared
        self._local = MemoryLimiter(clock)
        self._clock = clock
        self._pause_s = lease_ms / 3000
        self._name = secrets.token_hex(8)
        self._routers = 1
        self._up = True
        self._returning: set[asyncio.Task[None]] = set()
        self._log = logs.get("limits")

    async def take(self, demand: Demand) -> Standing:
        taking = asyncio.create_task(self._taken(demand))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:  # whoever asked has left; what is granted all the same goes back
            taking.add_done_callback(lambda done: self._give_back(demand, done))
            raise

    def _give_back(self, demand: Demand, taken: asyncio.Task[Standing]) -> None:
        if taken.cancelled() or taken.exception() is not None or taken.result().refused is not None:
            return
        task = asyncio.create_task(self.settle(demand, taken.result(), 0))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def _taken(self, demand: Demand) -> Standing:
        try:
            standing = await self._shared.take(demand)
        except StateUnavailable:
            self._note(up=False)
            return self._local.taken(self._shared_out(demand))
        self._note(up=True)
        if standing.refused is None:
            self._local.hold(demand.holder, demand.lease)
        return standing

    async def settle(self, demand: Demand, standing: Standing, tokens: int) -> None:
        self._local.release(demand.holder, demand.lease)
        try:
            await self._shared.settle(demand, standing, tokens)
        except StateUnavailable:
            self._note(up=False)
            self._local.settled(self._shared_out(demand), standing, tokens)

    async def renew(self) -> None:
        """Tell Redis once what runs here, and that this router does."""
        try:
            self._routers = max(1, await self._shared.present(self._name))
            await self._shared.renew(self._local.held())
        except StateUnavailable:
            self._note(up=False)
        else:
            self._note(up=True)

    async def run(self) -> None:
        """Renew for ever."""
        while True:
            await self.renew()
            await self._clock.sleep(self._pause_s)

    async def leave(self) -> None:
        """This router ends: the others' shares grow at once."""
        with contextlib.suppress(StateUnavailable):
            await self._shared.absent(self._name)

    def _shared_out(self, demand: Demand) -> Demand:
        return replace(demand, limits=demand.limits.share(self._routers))

    def _note(self, *, up: bool) -> None:
        if up is not self._up:
            self._up = up
            if up:
                self._log.info("limits_shared", routers=self._routers)
            else:
                self._log.warning("limits_local", routers=self._routers)
