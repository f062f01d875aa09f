"""Follows a backend's event stream: which bytes may go on, and whether the stream kept its promises.

A stream is whole when it gave a finish reason and then `[DONE]`. Anything else is a failure, also when the transport
ended cleanly or `[DONE]` follows an error event: serving layers were measured to do both after an engine died.
"""

from __future__ import annotations

from typing import Any

from shared.errors import StreamBroken
from shared.openai.sse import DONE, EventCutter, EventFacts, EventKind, read_burst, read_event
from shared.openai.stencil import Stencil
from shared.openai.typed_events import read_typed_event


class StreamCheck:
    """State of one stream. `feed` returns whole events to forward, byte for byte; `failure` is set at a fault, after
    which nothing more is returned."""

    __slots__ = (
        "_cutter",
        "_finished",
        "_one_by_one",
        "_read",
        "_stencil",
        "completion_tokens",
        "content_events",
        "data_events",
        "done",
        "failure",
        "has_content",
    )

    def __init__(self, *, typed: bool = False, one_by_one: bool = False) -> None:
        """`typed` events name their kind themselves, as those of the responses and the messages API do. `one_by_one`:
        each event is returned by itself, for someone who reads it; else several may be returned as one piece."""
        self._cutter = EventCutter()
        self._read = read_typed_event if typed else read_event
        self._one_by_one = typed or one_by_one
        self._stencil = Stencil()
        self._finished = False
        self.has_content = False
        self.done = False
        self.failure: StreamBroken | None = None
        self.content_events = 0
        self.data_events = 0
        self.completion_tokens: int | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more is expected: `[DONE]` came, or a fault."""
        return self.done or self.failure is not None

    def feed(self, chunk: bytes) -> list[bytes]:
        """Whole events that `chunk` completes, up to the end of the stream or its first fault."""
        if not self._one_by_one and not self._cutter.rest and not self.ended and self._take_burst(chunk):
            return [chunk]
        good: list[bytes] = []
        try:
            for event in self._cutter.feed(chunk):
                if self.ended:
                    break
                self._take(self._read(event))
                if self.failure is None:
                    good.append(event)
        except StreamBroken as error:
            self.failure = error
        return good

    def end(self) -> None:
        """The transport has no more bytes."""
        if not self.ended:
            self.failure = StreamBroken("The backend's stream ended before it was complete.")

    def _take_burst(self, chunk: bytes) -> bool:
        """Take a whole chunk at once, if it is nothing but good events, perhaps with the end marker last."""
        is_last = chunk.endswith(DONE)
        burst = read_burst(chunk.removesuffix(DONE) if is_last else chunk, self._stencil)
        if burst is None or (is_last and not (self._finished or burst.finished)):
            return False
        self.data_events += burst.events + is_last
        self.content_events += burst.content_events
        self.has_content = self.has_content or burst.content_events > 0
        self._finished = self._finished or burst.finished
        self.done = is_last
        self._note_usage(burst.usage)
        return True

    def _take(self, facts: EventFacts) -> None:
        kind = facts.kind
        if kind is not EventKind.COMMENT:
            self.data_events += 1
        if kind is EventKind.CONTENT:
            self.has_content = True
            self.content_events += 1
            self._finished = self._finished or facts.finished
            self._note_usage(facts.usage)
        elif kind is EventKind.ERROR:
            self.failure = StreamBroken("The backend reported an error inside its stream.")
        elif kind is EventKind.DONE:
            if self._finished or facts.finished:
                self.done = self.has_content = True
                self._note_usage(facts.usage)
            else:
                self.failure = StreamBroken("The backend's stream ended without a finish reason.")

    def _note_usage(self, usage: dict[str, Any] | None) -> None:
        if usage is not None and type(tokens := usage.get("completion_tokens")) is int:
            self.completion_tokens = tokens
