"""The port to fleet state: reports go in, all live reports come out with the reader's own receive time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from shared.fleet import Heartbeat


@dataclass(frozen=True, slots=True)
class Signed:
    """The very bytes of a heartbeat as its device sent them, and the signature header over them
    (`shared.enrolment`)."""

    body: bytes
    signature: str


@dataclass(frozen=True, slots=True)
class Report:
    """A heartbeat and when this reader first saw that sequence of that instance (its monotonic milliseconds).

    `signed` is what it was read from; None where it came without a signature. A store keeps it and judges nothing.
    """

    heartbeat: Heartbeat
    received_ms: int
    signed: Signed | None = None


class StateStore(Protocol):
    """Keeps the last report of each edge backend."""

    async def publish(self, heartbeat: Heartbeat, signed: Signed | None = None) -> bool:
        """Keep `heartbeat`, with what it was read from if that is signed; False when it is older than what is kept for
        the same instance.

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
