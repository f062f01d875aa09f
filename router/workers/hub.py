"""What the parent keeps for its workers: fleet state, counts of limits, sessions, the one audit log, what the console
shows, and metrics of the dead."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from router.audit.log import Storage
from router.limits.memory import MemoryLimiter
from router.limits.port import Bound, Demand, Standing
from router.privacy.sessions import Sessions
from router.workers.beats import beat_in, beat_out
from router.workers.channel import Channel, Handler
from router.workers.sessions import ParentSessions
from router.workers.views import Views
from shared.clock import Clock
from shared.errors import StateUnavailable
from shared.gathering import Snapshot, added
from shared.keys import KeyLimits
from shared.state.memory import MemoryStateStore

_GATHER_S = 1.0
"""How often counts are fetched: so much at most goes with a worker that is killed."""
_SCRAPE_LIMIT_S = 2.0


class Hub:
    """Serves the workers on a Unix socket. Runs in the parent's event loop."""

    def __init__(self, storage: Storage, clock: Clock, sessions: Sessions, *, ttl_s: float) -> None:
        """`ttl_s` is how long a silent agent is listed."""
        self._storage = storage
        self._clock = clock
        self._store = MemoryStateStore(clock, ttl_s=ttl_s)
        self._limiter = MemoryLimiter(clock)
        self._writing = asyncio.Lock()
        self._sessions = ParentSessions(sessions)
        self._views = Views(clock)
        self._latest: dict[Channel, Snapshot] = {}
        self._ended: Snapshot = []
        self._server: asyncio.Server | None = None

    async def open(self, socket: Path) -> None:
        """Listen at `socket`, whose folder nobody else may enter."""
        self._server = await asyncio.start_unix_server(self._joined, str(socket))

    async def close(self) -> None:
        """Let go of all workers."""
        if self._server is not None:
            self._server.close()
        for channel in list(self._latest):
            channel.close()

    async def run(self) -> None:
        """Keep the counts of all workers at hand, for ever."""
        while True:
            await self._clock.sleep(_GATHER_S)
            self._views.close_second()
            await asyncio.gather(*(self._fetch(channel) for channel in list(self._latest)))

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held: set[tuple[str, str]] = set()
        own: list[Channel] = []
        channel = Channel(reader, writer, self._handlers(own, held))
        own.append(channel)
        self._latest[channel] = []
        self._views.joined(channel)
        try:
            await channel.run()
        finally:
            # A worker that died runs nothing any more, and what it had counted stays counted.
            self._views.left(channel)
            for holder, lease in held:
                self._limiter.release(holder, lease)
            self._ended = added(self._ended, self._latest.pop(channel))

    def _handlers(self, own: list[Channel], held: set[tuple[str, str]]) -> dict[str, Handler]:
        """What one worker may ask; `own` is its channel once there is one, `held` the leases that it holds."""

        async def gather(value: Snapshot) -> list[Snapshot]:
            self._latest[own[0]] = value
            others = [each for each in self._latest if each is not own[0]]
            await asyncio.gather(*(self._fetch(each) for each in others))
            return [self._latest[each] for each in others if each in self._latest] + [self._ended]

        async def take(value: dict[str, Any]) -> dict[str, Any]:
            demand = _demand(value)
            standing = self._limiter.taken(demand)
            if standing.refused is None:
                held.add((demand.holder, demand.lease))
            return asdict(standing)

        async def settle(value: list[Any]) -> None:
            demand = _demand(value[0])
            held.discard((demand.holder, demand.lease))
            refused = value[1]["refused"]
            standing = Standing(**{**value[1], "refused": refused and Bound(refused)})
            self._limiter.settled(demand, standing, value[2])

        async def append(records: list[dict[str, Any]]) -> None:
            async with self._writing:
                await asyncio.to_thread(self._storage.append, records)
            self._views.wrote(own[0], records)

        async def views(news: dict[str, Any]) -> dict[str, Any]:
            return self._views.exchange(own[0], news)

        sessions, store = self._sessions, self._store
        of_sessions: dict[str, Handler] = {
            "pin": sessions.pin,
            "pin_of": sessions.pin_of,
            "stand_in": sessions.stand_in,
        }
        fleet: dict[str, Handler] = {"publish": self._publish, "reports": self._reports, "forget": store.forget}
        limits: dict[str, Handler] = {"gather": gather, "take": take, "settle": settle}
        return {**of_sessions, **fleet, **limits, "append": append, "sync": self._sync, "views": views}

    async def _fetch(self, channel: Channel) -> None:
        with contextlib.suppress(StateUnavailable):
            latest = await channel.ask("metrics", limit_s=_SCRAPE_LIMIT_S)
            if channel in self._latest:
                self._latest[channel] = latest

    async def _publish(self, value: list[str | None]) -> bool:
        return await self._store.publish(*beat_in(value))

    async def _reports(self, known: dict[str, list[Any]]) -> list[list[Any]]:
        now_ms, rows = self._clock.now_ms(), []
        for report in await self._store.reports():
            beat = report.heartbeat
            same = known.get(beat.backend_id) == [beat.instance, beat.sequence]
            value = None if same else beat_out(beat, report.signed)
            rows.append([beat.backend_id, now_ms - report.received_ms, value])
        return rows

    async def _sync(self, _: Any) -> None:
        async with self._writing:
            await asyncio.to_thread(self._storage.sync)


def _demand(value: dict[str, Any]) -> Demand:
    return Demand(**{**value, "limits": KeyLimits(**value["limits"])})
