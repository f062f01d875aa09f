"""The port to fleet state: reports go in, all live reports come out with the reader's own receive time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shared.fleet import Heartbeat


@dataclass(frozen=True, slots=True)
class Report:
    """A heartbeat and when this reader first saw that sequence of that instance (its monotonic milliseconds)."""

    heartbeat: Heartbeat
    received_ms: int


class StateStore(Protocol):
    """Keeps the last report of each edge backend."""

    async def publish(self, heartbeat: Heartbeat) -> bool:
        """Keep `heartbeat`; False when it is older than what is kept for the same instance.

        Raises:
            StateUnavailable: the store did not answer within its limit.
        """

    async def reports(self) -> tuple[Report, ...]:
        """The last report of each backend, at most `ttl` old, by backend id.

        Raises:
            StateUnavailable: the store did not answer within its limit.
        """

    async def forget(self, backend_id: str) -> None:
        """Drop what is kept for `backend_id`."""

    async def close(self) -> None:
        """Release connections."""
