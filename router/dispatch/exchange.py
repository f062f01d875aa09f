"""One attempt at one backend: sends the body, waits for the first content, relays the rest, says how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson

from router.audit.account import Attempt
from router.dispatch import spans
from router.dispatch.clients import BackendClient, NotPermitted
from router.dispatch.cooldown import pause_of
from router.dispatch.job import Job
from router.dispatch.ledger import Ledger
from router.dispatch.patience import Patience
from router.dispatch.refusal import MAX_ERROR_BYTES, Refusal, read_refusal
from router.dispatch.silence import Silence, SilentTooLong
from router.dispatch.stream import StreamCheck
from router.dispatch.targets import Access
from router.dispatch.transcript import EventFilter
from router.dispatch.verdict import Outcome
from router.dispatch.wire.answer import Answer
from router.dispatch.wire.errors import ConnectTimeout, Unreachable, WireError
from router.policy.model import Candidate
from router.privacy.answers import AnswerFilter
from shared.clock import Clock
from shared.errors import BackendStatus, BackendTimeout, BackendUnreachable, IsthmusError, StreamBroken
from shared.fleet import Zone
from shared.http.names import OUTPUT_CAP_HEADER
from shared.openai.envelope import SHOULD_RETRY
from shared.openai.facts import Endpoint
from shared.tracing.port import NO_SPAN, Span

_OUTPUT_CAP = re.compile(r"[0-9]{1,9}; reason=[a-z_]{1,32}")
_TAIL_S = 1.0
"""How long the end of a finished stream is waited for, so that its connection can be used again."""
_TYPED = frozenset({Endpoint.RESPONSES, Endpoint.MESSAGES})
_ANSWERS = ("choices", "data", "output")
"""Where an answer has what it says: chat and completions, embeddings, responses. A message says what it is."""
_TIMEOUTS = {
    "connect": Outcome.CONNECT_TIMEOUT,
    "first_token": Outcome.FIRST_TOKEN_TIMEOUT,
    "idle": Outcome.IDLE_TIMEOUT,
    "answer": Outcome.ANSWER_TIMEOUT,
}
_PHASES = {
    "connect": "No connection to the backend could be made in time (connect timeout).",
    "first_token": "The backend sent no content in time (first token timeout).",
    "idle": "The backend stopped sending (idle timeout).",
    "answer": "The backend did not answer in time (answer timeout).",
}


Send = Callable[[bytes], Awaitable[None]]
"""Takes bytes for the client, and waits while it reads slowly."""


@dataclass(frozen=True, slots=True)
class ExchangeLimits:
    """How long the first content is waited for; seconds between events, and for an answer that is not streamed (0:
    none)."""

    patience: Patience
    idle_s: float
    answer_s: float
    answer_bytes: int


class AttemptFailed(Exception):
    """The attempt ended without content: what it means, the error for the client, and the backend's own refusal."""

    def __init__(self, outcome: Outcome, error: IsthmusError, refusal: Refusal | None = None) -> None:
        super().__init__(outcome)
        self.outcome = outcome
        self.error = error
        self.refusal = refusal


class _TooLate(Exception):
    """Content, or the whole answer, did not come in time."""


class Exchange:
    """Use: `open`, then `body` or `relay`, and `close` in any case."""

    def __init__(
        self,
        job: Job,
        candidate: Candidate,
        ledger: Ledger,
        attempt: Attempt,
        limits: ExchangeLimits,
        clock: Clock,
        span: Span = NO_SPAN,
    ) -> None:
        self.candidate = candidate
        self.attempt = attempt
        self.tier = candidate.zone.tier
        self.body = b""
        self._job = job
        self._ledger = ledger
        self._limits = limits
        self._clock = clock
        self._span = span
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._since_s = 0.0
        self._began_ms = clock.now_ms()
        self._first_ms = 0
        self._late = False
        self._response: Answer | None = None
        new_filter = job.filters.get(self.tier) if job.filters else None
        self._answer = None if new_filter is None else AnswerFilter(new_filter)
        self._filter: EventFilter | None = self._answer
        self._watch = job.watch if self._answer is None else None
        one_by_one = self._answer is not None or self._watch is not None
        self._check = StreamCheck(typed=job.path in _TYPED, one_by_one=one_by_one)
        self._held: list[bytes] = []

    async def open(self, client: BackendClient, access: Access) -> None:
        """Send and wait: for the first content of a stream, or for the whole answer. What comes to nothing is closed.

        Raises:
            AttemptFailed: nothing of an answer was passed on yet, so another candidate may be tried.
        """
        streams = self._job.stream
        self._since_s = self._loop.time()
        if streams:
            self._look_at_wait()
        elif self._limits.answer_s > 0:
            self._timer = self._loop.call_later(self._limits.answer_s, self._is_late)
        try:
            response = await self._send(client, access)
            await (self._await_content(response) if streams else self._read_whole(response))
        except _TooLate:
            failed = self._failed(_timeout("first_token" if streams else "answer"))
            self.close()
            raise failed from None
        except BaseException:
            self.close()
            raise
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def passed_headers(self) -> dict[str, str]:
        """What of the backend's headers is for the client: why a device caps the answer."""
        cap = None if self._response is None else self._response.header(OUTPUT_CAP_HEADER)
        return {OUTPUT_CAP_HEADER: cap} if cap is not None and _OUTPUT_CAP.fullmatch(cap) else {}

    async def relay(self, send: Send, finish: Send) -> None:
        """Pass the stream on through `send`, and its last bytes through `finish`; waits for both, so that a slow reader
        slows the backend.

        Raises:
            StreamBroken, BackendTimeout: after content; everything before the fault was passed on.
        """
        response = self._response
        if response is None:
            raise RuntimeError("relay before open")
        check = self._check
        events, self._held = self._held, []
        if self._watch is not None:  # it sees what goes to the client, and nothing of an attempt that came to nothing
            self._filter = self._watch
            events = self._filtered(events)
        silence: Silence | None = None
        try:
            while not check.ended:
                if events:
                    await send(_joined(events))
                if silence is None:
                    silence = Silence(response, self._limits.idle_s)
                before = check.data_events
                self._ledger.began_reading(self._clock.now_ms())
                try:
                    events = await silence.watched(self._next_events(response), check.data_events)
                finally:
                    self._ledger.ended_reading()
                if check.data_events != before:  # comments are no sign of progress
                    self._ledger.moved(self._clock.now_ms())
        except SilentTooLong:
            self._end(Outcome.IDLE_TIMEOUT)
            raise _timeout("idle") from None
        finally:
            if silence is not None:
                silence.close()
        if check.failure is not None:
            self._end(Outcome.BROKEN)
            if rest := _joined(events) + self._still_held():
                await send(rest)
            raise check.failure
        self._end(Outcome.OK)
        await finish(_joined(events))
        if not response.ended:
            await _read_tail(response)

    def close(self, left: Outcome = Outcome.CLIENT_LEFT) -> None:
        """Let go of the backend; an attempt that has no outcome yet ends as `left`."""
        self._end(left)
        if self._response is not None:
            # Back to the pool when it was read to its end, else closed: that is what stops the backend's work.
            self._response.release()
            self._response = None

    def _look_at_wait(self) -> None:
        """Wait on for the first content, or no longer."""
        left_s = self._limits.patience.left_s(self.candidate, self._loop.time() - self._since_s)
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look_at_wait)
        else:
            self._is_late()

    def _is_late(self) -> None:
        """The time is over; while there is no connection yet, the limit on connecting ends the wait."""
        self._late = True
        if self._response is not None:
            self._response.fail(_TooLate())

    async def _send(self, client: BackendClient, access: Access) -> Answer:
        raw = b""
        try:
            response = self._response = await client.send(self._job, self.candidate, access, self._span)
            if self._late:
                raise _TooLate
            await response.begun()
            self.attempt.status = response.status
            if response.status != 200:
                raw = await response.whole(MAX_ERROR_BYTES)
        except NotPermitted as error:
            raise self._failed(error, Outcome.NOT_PERMITTED) from None
        except ConnectTimeout:
            raise self._failed(_timeout("connect")) from None
        except Unreachable:
            raise self._failed(BackendUnreachable("The backend refuses connections."), Outcome.UNREACHABLE) from None
        except WireError:
            raise self._failed(BackendUnreachable("The backend ended the connection before an answer.")) from None
        if response.status != 200:
            retry_after = pause_of(response.header("retry-after"), response.header("retry-after-ms"))
            own_words = self.candidate.zone is not Zone.CLOUD
            refusal = read_refusal(
                response.status,
                raw,
                retry_after=retry_after,
                own_words=own_words,
                is_final=response.header(SHOULD_RETRY) == "false",
            )
            error_ = BackendStatus("The backend failed on this request.", backend_status=response.status)
            raise self._failed(error_, refusal.outcome, refusal)
        return response

    async def _await_content(self, response: Answer) -> None:
        while not self._check.has_content:
            self._held += await self._next_events(response)
            if self._check.failure is not None and not self._check.has_content:
                raise self._failed(self._check.failure)
        self._first_ms = self._clock.now_ms()
        ttft_ms = float(self._first_ms - self._began_ms)
        self.attempt.ttft_ms = ttft_ms
        self._ledger.observe_first_token(ttft_ms, self._job.prompt_bucket)

    async def _next_events(self, response: Answer) -> list[bytes]:
        """Whole events of the next bytes that carry any; empty when all are held back or the stream has ended."""
        while not self._check.ended:
            try:
                chunk = await response.read()
            except WireError:
                chunk = b""
            if not chunk:
                self._check.end()
                break
            if events := self._check.feed(chunk):
                return self._filtered(events)
        return []

    def _filtered(self, events: list[bytes]) -> list[bytes]:
        """What of these events goes on now: text may be held back, so perhaps nothing."""
        if self._filter is None:
            return events
        passed: list[bytes] = []
        try:
            for event in events:
                passed += self._filter.events(event)
        except StreamBroken as error:
            self._check.failure = error
        return passed

    def _still_held(self) -> bytes:
        """Text of a broken stream that was held back and may go on."""
        try:
            return b"".join(self._filter.rest()) if self._filter is not None else b""
        except StreamBroken:  # it could not be scanned: it stays here
            return b""

    async def _read_whole(self, response: Answer) -> None:
        try:
            raw = await response.whole(self._limits.answer_bytes)
        except WireError:
            raise self._failed(StreamBroken("The backend's answer was cut.")) from None
        answer = _answer_of(raw)
        if answer is None:
            raise self._failed(StreamBroken("The backend's answer is not one."))
        usage = answer.get("usage")
        if isinstance(usage, dict):
            tokens = usage.get("completion_tokens", usage.get("output_tokens"))
            self.attempt.completion_tokens = tokens if type(tokens) is int else None
        try:
            self.body = raw if self._answer is None else self._answer.whole(raw)
        except StreamBroken as error:
            raise self._failed(error) from None
        self._end(Outcome.OK)

    def _failed(
        self, error: IsthmusError, outcome: Outcome | None = None, refusal: Refusal | None = None
    ) -> AttemptFailed:
        outcome = outcome or _outcome_of(error)
        self._end(outcome)
        return AttemptFailed(outcome, error, refusal)

    def _end(self, outcome: Outcome) -> None:
        """Note how the attempt ended; the first to say so is right."""
        if self.attempt.outcome is not None:
            return
        now_ms = self._clock.now_ms()
        self.attempt.outcome = outcome
        self.attempt.duration_ms = float(now_ms - self._began_ms)
        check = self._check
        if check.has_content:
            tokens = check.completion_tokens or check.content_events
            self.attempt.completion_tokens = tokens
            self._ledger.observe_decode(tokens - 1, float(now_ms - self._first_ms))
        self._ledger.leave(outcome, now_ms)
        reported = check.completion_tokens if self._job.stream else self.attempt.completion_tokens
        spans.ended(self._span, self.attempt, outcome, reported)


def _joined(events: list[bytes]) -> bytes:
    return events[0] if len(events) == 1 else b"".join(events)


async def _read_tail(response: Answer) -> None:
    """Wait for the end of a finished stream; one that does not come ends the connection."""
    with contextlib.suppress(TimeoutError, WireError):
        async with asyncio.timeout(_TAIL_S):
            while await response.read():
                pass


def _answer_of(raw: bytes) -> dict[str, Any] | None:
    """The answer in `raw`, or None for an empty body, something else, or an error under status 200."""
    try:
        answer = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(answer, dict) or answer.get("error") is not None:
        return None
    return answer if any(answer.get(name) for name in _ANSWERS) or answer.get("type") == "message" else None


def _timeout(phase: str) -> BackendTimeout:
    return BackendTimeout(_PHASES[phase], phase=phase)


def _outcome_of(error: IsthmusError) -> Outcome:
    if isinstance(error, BackendTimeout):
        return _TIMEOUTS[error.phase]
    return Outcome.BROKEN if isinstance(error, StreamBroken) else Outcome.FAILED
