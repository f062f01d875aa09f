"""Judges one streamed answer from its bytes and their arrival times: how fast, or which one way it failed.

Pure: bytes and monotonic seconds go in, one `Outcome` comes out. Time to first token is the arrival of the first
text of any kind (reasoning and tool calls too), never of the headers or of the role; `content_ms` is the first text
of the answer itself. Time per output token divides the span from first to last text by the tokens that the backend's
own `usage` counts (less the first one).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from shared.errors import StreamBroken
from shared.openai.sse import EventCutter, EventFacts, EventKind, data_of, read_event

_ANSWER_KEYS = ("content", "tool_calls", "function_call", "refusal", "audio")
_OTHER_KEYS = ("reasoning_content", "reasoning")


class Failure(StrEnum):
    """The one way in which an answer failed."""

    UNREACHABLE = "unreachable"
    """No connection was made."""
    STATUS = "status"
    """Another status than 200."""
    REFUSED = "refused"
    """Policy let nobody serve it: nothing left that privacy permits."""
    CONNECTION_CUT = "connection_cut"
    """The connection ended before the body did."""
    ERROR_EVENT = "error_event"
    """The stream carried an error."""
    MALFORMED = "malformed"
    """The answer carried something that is not of this API."""
    NO_DONE = "no_done"
    """The body ended properly and without `[DONE]`."""
    STALL = "stall"
    """Nothing, or nothing but keep-alives, for too long."""
    TOO_LONG = "too_long"
    """Content kept coming past the limit for a whole answer."""
    PRIVACY_VIOLATION = "privacy_violation"
    """What must stay on the edge was answered by the cloud."""
    WRONG_TIER = "wrong_tier"
    """Another tier answered than the one that was asked for."""


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
    prompt_tokens: int | None = None
    """As the backend's own usage counts them."""
    tier: str | None = None
    content_ms: float | None = None
    """First text of the answer itself; later than `ttft_ms` where a model reasons first."""
    longest_gap_ms: float | None = None
    """Longest silence between two texts."""
    stalls: int = 0
    """Silences between two texts that were longer than the limit for a smooth answer."""
    code: str | None = None
    """Machine code of a refusal, from the error envelope."""
    told_to_wait: int = 0
    """Refusals with a time to wait that came before, each of which was waited for. Times include them."""

    @property
    def label(self) -> str:
        """The failure as reports name it; a status carries its number."""
        if self.failure is Failure.STATUS:
            return f"{self.failure} {self.status}"
        return str(self.failure or "ok")


@dataclass(frozen=True, slots=True)
class Limits:
    """When to give up (seconds): silence, and one whole answer; which silence between texts is a stall; and how often
    a refusal that says when to come again is followed."""

    stall_s: float
    total_s: float
    gap_s: float = 1.0
    retries: int = 0


class StreamMeter:
    """Follows one answer of status 200. Feed it bytes as they arrive until `is_over`, then ask for the outcome."""

    def __init__(self, *, started_s: float, limits: Limits, sent_s: float | None = None) -> None:
        """Times count from `started_s`, silence from `sent_s` (None: the same moment)."""
        self._started_s = started_s
        self._limits = limits
        self._cutter = EventCutter()
        self._first_s: float | None = None
        self._content_s: float | None = None
        self._last_s: float | None = None
        self._gap_s = 0.0
        self._stalls = 0
        self._progress_s = started_s if sent_s is None else sent_s
        self._tokens: int | None = None
        self._prompt_tokens: int | None = None
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
                self._take(event, read_event(event), now_s)
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
            ttft_ms=self._ms(self._first_s),
            content_ms=self._ms(self._content_s),
            tpot_ms=self._tpot_ms(),
            output_tokens=self._tokens,
            prompt_tokens=self._prompt_tokens,
            tier=tier,
            longest_gap_ms=None if self._first_s is None else self._gap_s * 1000,
            stalls=self._stalls,
        )

    def _ms(self, at_s: float | None) -> float | None:
        return None if at_s is None else (at_s - self._started_s) * 1000

    def _take(self, event: bytes, facts: EventFacts, now_s: float) -> None:
        if facts.kind is EventKind.ERROR:
            self._close(now_s, Failure.ERROR_EVENT)
        elif facts.kind is EventKind.DONE:
            self._close(now_s)
        elif facts.kind is EventKind.CONTENT:
            self._progress_s = now_s
            if facts.usage is not None:
                self._tokens = _count(facts.usage.get("completion_tokens"))
                self._prompt_tokens = _count(facts.usage.get("prompt_tokens"))
            # An event in the middle of an answer is text; the first and the closing ones are looked into.
            unclear = self._content_s is None or facts.usage is not None or facts.finished
            any_text, answer_text = texts_of(event) if unclear else (True, True)
            if answer_text and self._content_s is None:
                self._content_s = now_s
            if any_text:
                self._text(now_s)

    def _text(self, now_s: float) -> None:
        if self._first_s is None or self._last_s is None:
            self._first_s = self._last_s = now_s
            return
        gap_s = now_s - self._last_s
        self._gap_s = max(self._gap_s, gap_s)
        self._stalls += gap_s > self._limits.gap_s
        self._last_s = now_s

    def _close(self, now_s: float, failure: Failure | None = None) -> None:
        self._over_s, self._failure = now_s, failure

    def _tpot_ms(self) -> float | None:
        if self._first_s is None or self._last_s is None or self._tokens is None or self._tokens < 2:
            return None
        return (self._last_s - self._first_s) * 1000 / (self._tokens - 1)


def texts_of(event: bytes) -> tuple[bool, bool]:
    """Whether a whole event that was read before carries text of any kind, and of the answer itself."""
    any_text = answer = False
    value: Any = orjson.loads(data_of(event))
    for choice in value.get("choices") or ():
        if not isinstance(choice, dict):
            continue
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        answer = answer or bool(choice.get("text")) or any(delta.get(key) for key in _ANSWER_KEYS)
        any_text = any_text or answer or any(delta.get(key) for key in _OTHER_KEYS)
    return any_text, answer


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
