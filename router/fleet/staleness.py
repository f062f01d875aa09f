"""Says when agents have fallen silent: a count to be shown, and one log line in thirty seconds while there are any."""

from __future__ import annotations

from collections.abc import Callable

from router.fleet.directory import FleetDirectory
from shared import logs
from shared.clock import Clock
from shared.fleet import FleetSnapshot

_LOOK_S = 1.0
_REPEAT_MS = 30_000


def stale_backends(fleet: FleetSnapshot, stale_after_ms: int) -> tuple[str, ...]:
    """Backends whose last report is older than `stale_after_ms`: they get no requests."""
    oldest_ms = fleet.taken_ms - stale_after_ms
    return tuple(b.backend_id for b in fleet.backends if b.received_ms is not None and b.received_ms < oldest_ms)


class StaleWatch:
    """Looks once a second."""

    def __init__(self, directory: FleetDirectory, stale_after_ms: Callable[[], int], clock: Clock) -> None:
        """`stale_after_ms` gives the limit of the policy in force."""
        self._directory = directory
        self._stale_after_ms = stale_after_ms
        self._clock = clock
        self._log = logs.get("fleet")
        self._said_ms: int | None = None

    def limit_ms(self) -> int:
        """The age at which a report is stale."""
        return self._stale_after_ms()

    def count(self) -> int:
        """How many are stale now."""
        return len(self._now()[0])

    def look(self) -> None:
        """Say it, if it is time."""
        stale, reporting = self._now()
        now_ms = self._clock.now_ms()
        if not stale:
            if self._said_ms is not None:
                self._log.info("backends_fresh", reporting=reporting)
            self._said_ms = None
        elif self._said_ms is None or now_ms - self._said_ms >= _REPEAT_MS:
            self._said_ms = now_ms
            self._log.warning("backends_stale", stale=len(stale), reporting=reporting, first=stale[0])

    async def run(self) -> None:
        """Look for ever."""
        while True:
            self.look()
            await self._clock.sleep(_LOOK_S)

    def _now(self) -> tuple[tuple[str, ...], int]:
        fleet = self._directory.snapshot()
        reporting = sum(b.received_ms is not None for b in fleet.backends)
        return stale_backends(fleet, self._stale_after_ms()), reporting
