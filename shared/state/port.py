"""The port to fleet state: reports go in, all live reports come out with the reader's own receive time."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    Most beats say what the one before them said: `content` stays the same object then, and `later` is the number by
    which alone they differ (None: that of `content`), so that a reader of thousands a second makes nothing anew.
    """

    content: Heartbeat
    received_ms: int
    signed: Signed | None = None
    later: int | None = None

    @property
    def heartbeat(self) -> Heartbeat:
        """The beat itself."""
        return self.content if self.later is None else self.content.model_copy(update={"sequence": self.later})

    @property
    def backend_id(self) -> str:
        return self.content.backend_id

    @property
    def instance(self) -> str:
        return self.content.instance

    @property
    def sequence(self) -> int:
        return self.content.sequence if self.later is None else self.later

    def received(self, received_ms: int) -> Report:
        """The same, received at another time."""
        return replace(self, received_ms=received_ms)


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
