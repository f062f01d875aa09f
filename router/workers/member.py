"""What a worker does through its parent: fleet state, limits, audit records and the metrics of all workers."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from router.limits.port import Bound, Demand, Standing
from router.workers.beats import beat_in, beat_out
from router.workers.channel import Channel, Refused
from shared.clock import Clock
from shared.errors import StateUnavailable
from shared.fleet import Heartbeat
from shared.gathering import Snapshot
from shared.state.port import Report, Signed

_APPEND_LIMIT_S = 30.0


class Member:
    """One worker's side. `snapshot` gives its own metrics when the parent asks for them."""

    def __init__(self) -> None:
        self.snapshot: Callable[[], Snapshot] = list
        self._channel: Channel | None = None
        self._reading: asyncio.Task[None] | None = None

    async def join(self, socket: Path, *, on_parent_gone: Callable[[], None]) -> None:
        """Connect to the parent; `on_parent_gone` is called once it is no longer there."""

        def ended(reading: asyncio.Task[None]) -> None:
            if not reading.cancelled():
                on_parent_gone()

        reader, writer = await asyncio.open_unix_connection(str(socket))
        self._channel = Channel(reader, writer, {"metrics": self._metrics})
        self._reading = asyncio.create_task(self._channel.run())
        self._reading.add_done_callback(ended)

    async def leave(self) -> None:
        """End the connection."""
        if self._channel is not None:
            self._channel.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def ask(self, what: str, value: Any = None, **options: Any) -> Any:
        """As `Channel.ask`."""
        if self._channel is None:
            raise StateUnavailable("This worker has not joined its parent.")
        return await self._channel.ask(what, value, **options)

    async def gathered(self, own: Snapshot) -> list[Snapshot]:
        """The metrics of the other workers, and what workers that ended had counted; `own` are this one's."""
        found: list[Snapshot] = await self.ask("gather", own)
        return found

    async def exchange(self, news: Mapping[str, Any]) -> dict[str, Any]:
        """As `router.admin.pulse.Family`."""
        told: dict[str, Any] = await self.ask("views", dict(news))
        return told

    async def _metrics(self, _: Any) -> Snapshot:
        return self.snapshot()


class MemberStore:
    """Fleet state in the parent's memory."""

    def __init__(self, member: Member, clock: Clock) -> None:
        self._member = member
        self._clock = clock
        self._seen: dict[str, Report] = {}

    async def publish(self, heartbeat: Heartbeat, signed: Signed | None = None) -> bool:
        return bool(await self._member.ask("publish", beat_out(heartbeat, signed)))

    async def reports(self) -> tuple[Report, ...]:
        known = {name: [r.instance, r.sequence] for name, r in self._seen.items()}
        rows = await self._member.ask("reports", known)
        now_ms, seen = self._clock.now_ms(), {}
        for name, age_ms, value in rows:
            if value is None:
                seen[name] = self._seen[name]
            else:
                heartbeat, signed = beat_in(value)
                seen[name] = Report(heartbeat, now_ms - age_ms, signed)
        self._seen = seen
        return tuple(seen[name] for name in sorted(seen))

    async def forget(self, backend_id: str) -> None:
        await self._member.ask("forget", backend_id)

    async def close(self) -> None:
        self._seen = {}


class MemberLimiter:
    """Limits counted by the parent."""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def take(self, demand: Demand) -> Standing:
        found = await self._member.ask("take", asdict(demand))
        return Standing(**{**found, "refused": found["refused"] and Bound(found["refused"])})

    async def settle(self, demand: Demand, standing: Standing, tokens: int) -> None:
        await self._member.ask("settle", [asdict(demand), asdict(standing), tokens])


class MemberStorage:
    """Audit records, which the parent alone writes. Called from threads, as every storage is."""

    def __init__(self, member: Member, loop: asyncio.AbstractEventLoop) -> None:
        self._member = member
        self._loop = loop

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._ask("append", list(records))

    def sync(self) -> None:
        self._ask("sync")

    def close(self) -> None:
        """Nothing is held here."""

    def _ask(self, what: str, value: Any = None) -> None:
        asked = self._member.ask(what, value, limit_s=_APPEND_LIMIT_S)
        try:
            asyncio.run_coroutine_threadsafe(asked, self._loop).result()
        except Refused as refused:
            raise OSError(refused.errno, "the parent could not write") from None
        except StateUnavailable:
            raise OSError(errno.EPIPE, "the parent is gone") from None
