"""Judges one streamed answer from its bytes and their arrival times: how fast, or which one way it failed.

Pure: bytes and monotonic seconds go in, one `Outcome` comes out. Time to first token is the arrival of the first
content, never of the headers; time per output token divides the span from first to last content by the tokens
that the backend's own `usage` counts (less the first one).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shared.errors import StreamBroken
from shared.openai.sse import EventCutter, EventFacts, EventKind, read_event


class Failure(StrEnum):
    """The one way in which an answer failed."""

    UNREACHABLE = "unreachable"
    """No connection was made."""
    STATUS = "status"
    """Another status than 200."""
    CONNECTION_CUT = "connection_cut"
    """The connection ended before the body did."""
    ERROR_EVENT = "error_event"
    """The stream carried an error."""
    MALFORMED = "malformed"
    """The stream carried something that is no event of this API."""
    NO_DONE = "no_done"
    """The body ended properly and without `[DONE]`."""
    STALL = "stall"
    """Nothing, or nothing but keep-alives, for too long."""
    TOO_LONG = "too_long"
    """Content kept coming past the limit for a whole answer."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request. Times are milliseconds from the start of sending; only those of good answers have a meaning."""

    failure: Failure | None
    status: int | None
    total_ms: float
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    """Time per output token after the first; None without usage or with fewer than two tokens."""
    output_tokens: int | None = None
    tier: str | None = None

    @property
    def label(self) -> str:
        """The failure as reports name it; a status carries its number."""
        if self.failure is Failure.STATUS:
            return f"{self.failure} {self.status}"
        return str(self.failure or "ok")


@dataclass(frozen=True, slots=True)
class Limits:
    """When to give up (seconds): silence, and one whole answer."""

    stall_s: float
    total_s: float


class StreamMeter:
    """Follows one answer of status 200. Feed it bytes as they arrive until `is_over`, then ask for the outcome."""

    def __init__(self, *, started_s: float, limits: Limits) -> None:
        self._started_s = started_s
        self._limits = limits
        self._cutter = EventCutter()
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._progress_s = started_s
        self._tokens: int | None = None
        self._failure: Failure | None = None
        self._over_s: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing that comes later can change the judgement."""
        return self._over_s is not None

    def feed(self, data: bytes, now_s: float) -> None:
        """Take bytes that arrived at `now_s`."""
        try:
            for event in self._cutter.feed(data):
                self._take(read_event(event), now_s)
                if self.is_over:
                    return
        except StreamBroken:
            self._close(now_s, Failure.MALFORMED)
            return
        if now_s - self._progress_s > self._limits.stall_s:
            self._close(now_s, Failure.STALL)
        elif now_s - self._started_s > self._limits.total_s:
            self._close(now_s, Failure.TOO_LONG)

    def end(self, now_s: float, failure: Failure | None = None) -> None:
        """The body ended: with `failure` where the transport saw one; properly otherwise."""
        if not self.is_over:
            self._close(now_s, failure or (Failure.MALFORMED if self._cutter.rest.strip() else Failure.NO_DONE))

    def outcome(self, *, tier: str | None = None) -> Outcome:
        """The judgement of an answer that is over."""
        over_s = self._started_s if self._over_s is None else self._over_s
        return Outcome(
            failure=self._failure,
            status=200,
            total_ms=(over_s - self._started_s) * 1000,
            ttft_ms=None if self._first_s is None else (self._first_s - self._started_s) * 1000,
            tpot_ms=self._tpot_ms(),
            output_tokens=self._tokens,
            tier=tier,
        )

    def _take(self, facts: EventFacts, now_s: float) -> None:
        if facts.kind is EventKind.ERROR:
            self._close(now_s, Failure.ERROR_EVENT)
        elif facts.kind is EventKind.DONE:
            self._close(now_s)
        elif facts.kind is EventKind.CONTENT:
            self._progress_s = now_s
            if facts.usage is not None:
                tokens = facts.usage.get("completion_tokens")
                self._tokens = tokens if isinstance(tokens, int) else None
            else:
                self._first_s = now_s if self._first_s is None else self._first_s
                self._last_s = now_s

    def _close(self, now_s: float, failure: Failure | None = None) -> None:
        self._over_s, self._failure = now_s, failure

    def _tpot_ms(self) -> float | None:
        if self._first_s is None or self._last_s is None or self._tokens is None or self._tokens < 2:
            return None
        return (self._last_s - self._first_s) * 1000 / (self._tokens - 1)
