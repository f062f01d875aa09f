"""The port to tracing: a tracer begins spans, a span has children and ends; without a collector all of it is nothing.

Facts are names and numbers of ours. No text of a request, no key, no message of an error may become one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Literal, Protocol, Self

from shared.errors import IsthmusError
from shared.tracing.w3c import Carried

Kind = Literal["server", "client", "internal"]
Fact = str | bool | int | float | Sequence[str] | None
"""One value; None is left out."""
Facts = Mapping[str, Fact]
NO_FACTS: Facts = {}
_LEFT = (asyncio.CancelledError, ConnectionError, GeneratorExit)
"""Someone went away: that is no failure of the work."""


class Span(Protocol):
    """One piece of work. As a context manager it ends with its block, failed if the block raised."""

    @property
    def recording(self) -> bool:
        """Whether facts are kept; where they are not, none need to be gathered."""

    @property
    def trace_id(self) -> str | None:
        """The trace, as 32 hex digits; None where there is none."""

    @property
    def traceparent(self) -> str | None:
        """The header by which work elsewhere becomes a child of this span."""

    def child(self, name: str, *, kind: Kind = "internal", facts: Facts = NO_FACTS) -> Span:
        """Begin a part of this work."""

    def note(self, facts: Facts) -> None:
        """Keep facts."""

    def fail(self, error_type: str) -> None:
        """The work failed; `error_type` is one of a closed set, never a message. Who says so first is right."""

    def end(self) -> None:
        """The work is over; safe to call twice."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Tracer(Protocol):
    """Begins the spans of one process."""

    @property
    def starts_traces(self) -> bool:
        """Whether a request without a trace gets one; if not, `begin` has nothing to say of it but `NO_SPAN`."""

    def begin(self, name: str, carried: Carried | None, facts: Facts = NO_FACTS) -> Span:
        """The span of a request that came in, in the caller's trace or at the head of a new one."""

    async def close(self, limit_s: float) -> None:
        """Hand over what was recorded, within `limit_s`."""


class QuietSpan:
    """A span that keeps nothing, and passes on the trace it stands in, if any."""

    __slots__ = ("trace_id", "traceparent")
    recording = False

    def __init__(self, trace_id: str | None = None, traceparent: str | None = None) -> None:
        self.trace_id = trace_id
        self.traceparent = traceparent

    def child(self, name: str, *, kind: Kind = "internal", facts: Facts = NO_FACTS) -> QuietSpan:
        return self

    def note(self, facts: Facts) -> None: ...

    def fail(self, error_type: str) -> None: ...

    def end(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


NO_SPAN: Span = QuietSpan()
"""Stands where nobody traces."""


class NoTracer:
    """Tracing is off: a caller's trace goes on as it came."""

    starts_traces = False

    def begin(self, name: str, carried: Carried | None, facts: Facts = NO_FACTS) -> Span:
        return NO_SPAN if carried is None else QuietSpan(carried.trace_id, carried.traceparent)

    async def close(self, limit_s: float) -> None: ...


def error_type_of(error: BaseException) -> str | None:
    """What a failed span says of `error`: its code or its class. None where somebody left."""
    if isinstance(error, _LEFT):
        return None
    return error.code if isinstance(error, IsthmusError) else type(error).__qualname__
