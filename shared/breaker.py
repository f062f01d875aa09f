"""A circuit breaker as a state machine over passed-in time: stop asking what fails, then try it once, carefully.

closed ──failures in a row──▶ open ──after open_ms──▶ half open ──one success──▶ closed
                               ▲                          │
                               └────── probe failed ──────┘  (twice as long, up to a cap)
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.fleet import Breaker


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """Failures in a row that open the breaker, and for how long (milliseconds): first, and at most."""

    failures: int = 3
    open_ms: int = 1_000
    max_open_ms: int = 30_000


class CircuitBreaker:
    """State for one peer. Every admitted call ends with exactly one of `succeeded`, `failed`, `abandoned`."""

    def __init__(self, rules: BreakerRules) -> None:
        self._rules = rules
        self._failures = 0
        self._trips = 0
        self._open_until_ms: int | None = None
        self._probing = False

    def state(self, now_ms: int) -> Breaker:
        """The state at `now_ms`."""
        if self._open_until_ms is None:
            return Breaker.CLOSED
        return Breaker.OPEN if now_ms < self._open_until_ms else Breaker.HALF_OPEN

    def can_admit(self, now_ms: int) -> bool:
        """Whether a call may start: always when closed, one at a time when half open."""
        state = self.state(now_ms)
        return state is Breaker.CLOSED or (state is Breaker.HALF_OPEN and not self._probing)

    def admit(self, now_ms: int) -> bool:
        """Start a call; False when it may not start."""
        if not self.can_admit(now_ms):
            return False
        if self._open_until_ms is not None:
            self._probing = True
        return True

    def succeeded(self) -> None:
        """The call did its work: whatever was held against the peer is forgotten."""
        self._failures = self._trips = 0
        self._open_until_ms = None
        self._probing = False

    def failed(self, now_ms: int) -> None:
        """The peer failed on the call."""
        self._failures += 1
        was_probing, self._probing = self._probing, False
        if was_probing or (self._open_until_ms is None and self._failures >= self._rules.failures):
            self.trip(now_ms)

    def abandoned(self) -> None:
        """The call ended without a verdict on the peer, as when the client left."""
        self._probing = False

    def trip(self, now_ms: int) -> None:
        """Open at once."""
        wait_ms = min(self._rules.max_open_ms, self._rules.open_ms * 2 ** min(self._trips, 16))
        self._trips += 1
        self._open_until_ms = now_ms + wait_ms

    def retry_now(self, now_ms: int) -> None:
        """Let one call through at once: there is a fresh sign of life."""
        if self._open_until_ms is not None:
            self._open_until_ms = min(self._open_until_ms, now_ms)

    def reopens_in_ms(self, now_ms: int) -> int:
        """Milliseconds until a call may be tried; 0 when one may start now."""
        return 0 if self._open_until_ms is None else max(0, self._open_until_ms - now_ms)
