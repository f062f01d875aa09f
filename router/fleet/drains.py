"""Remembers which backends an operator took out of service; all routers of one fleet go by one register."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from shared import logs
from shared.clock import Clock
from shared.errors import SettingsError
from shared.state.register import Register


@dataclass(frozen=True, slots=True)
class DrainBook:
    """What the register holds: backend ids, and since when (Unix seconds) nothing new is sent there."""

    since: dict[str, float] = field(default_factory=dict)
    revision: int = 0


class Drains:
    """The register, as it was last looked at: decisions read it for every backend."""

    def __init__(self, register: Register[DrainBook], clock: Clock) -> None:
        self._register = register
        self._clock = clock
        self._log = logs.get("drains")
        self._since = register.content.since
        self._listeners: list[Callable[[str], None]] = []

    def __contains__(self, backend_id: object) -> bool:
        return backend_id in self._since

    def listen(self, hear: Callable[[str], None]) -> None:
        """Let `hear` have the id of every backend that is drained or used again."""
        self._listeners.append(hear)

    def since(self) -> dict[str, float]:
        """All of them."""
        return dict(self._since)

    async def add(self, backend_id: str) -> None:
        """Send nothing new to this backend, known or not."""
        at = round(self._clock.unix_s(), 3)

        def with_drain(book: DrainBook) -> DrainBook:
            return replace(book, since={backend_id: at, **book.since})

        self._take((await self._register.update(with_drain)).since)
        self._log.info("backend_drained", backend=backend_id)

    async def remove(self, backend_id: str) -> None:
        """Send to it again; nothing changes where it was not drained."""

        def without(book: DrainBook) -> DrainBook:
            return replace(book, since={each: at for each, at in book.since.items() if each != backend_id})

        if backend_id in self._register.content.since:
            self._take((await self._register.update(without)).since)
            self._log.info("backend_resumed", backend=backend_id)

    async def follow(self, interval_s: float) -> None:
        """Look for ever. A register that cannot be read changes nothing."""
        while True:
            await self._clock.sleep(interval_s)
            with contextlib.suppress(SettingsError):
                self._take(self._register.content.since)

    def _take(self, since: dict[str, float]) -> None:
        changed, self._since = self._since.keys() ^ since.keys(), since
        for hear in self._listeners:
            for backend_id in changed:
                hear(backend_id)
