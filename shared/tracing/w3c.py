"""Reads the trace context that a caller sends (W3C Trace Context, Baggage); what breaks the format is as if unsent."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from multidict import CIMultiDictProxy

TRACE_PARENT, TRACE_STATE, BAGGAGE = "traceparent", "tracestate", "baggage"
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_NO_VERSION = "ff"
_KEY = r"[a-z0-9][a-z0-9_*/@-]{0,255}"
_MEMBER = re.compile(rf"{_KEY}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{{0,255}}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")
_MEMBERS = 32
_STATE_CHARS = 512
"""What a participant should pass on at least; more is left out whole, as the recommendation allows."""
_BAGGAGE = re.compile(r"[\x20-\x7e]{1,8192}")


@dataclass(frozen=True, slots=True)
class Carried:
    """A caller's trace: ids in lower-case hex, whether the caller records it, and what rides along for tools."""

    trace_id: str
    span_id: str
    sampled: bool
    state: str | None = field(default=None, repr=False)
    baggage: str | None = field(default=None, repr=False)

    @property
    def traceparent(self) -> str:
        """The header by which the trace goes on."""
        return trace_parent(self.trace_id, self.span_id, sampled=self.sampled)

    @property
    def riders(self) -> dict[str, str]:
        """The headers that hold text of the caller's own."""
        riders = {TRACE_STATE: self.state, BAGGAGE: self.baggage}
        return {name: value for name, value in riders.items() if value is not None}


def trace_parent(trace_id: str, span_id: str, *, sampled: bool) -> str:
    """The header `traceparent`, in version 00."""
    return f"00-{trace_id}-{span_id}-{'01' if sampled else '00'}"


def read_carried(headers: CIMultiDictProxy[str]) -> Carried | None:
    """The caller's trace; None where there is none, or one that is not valid: a new trace begins then.

    A `tracestate` or `baggage` that is not valid is left out by itself, as the recommendation asks.
    """
    given = headers.getall(TRACE_PARENT, ())
    if len(given) != 1 or (found := _PARENT.fullmatch(given[0])) is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == _NO_VERSION or trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    if version == "00" and more is not None:
        return None
    return Carried(
        trace_id=trace_id,
        span_id=span_id,
        sampled=bool(int(flags, 16) & 1),
        state=_state(",".join(headers.getall(TRACE_STATE, ()))),
        baggage=_valid(_BAGGAGE, ",".join(headers.getall(BAGGAGE, ()))),
    )


def _state(text: str) -> str | None:
    members = [member for each in text.split(",") if (member := each.strip())]
    whole = ",".join(members)
    if not members or len(members) > _MEMBERS or len(whole) > _STATE_CHARS:
        return None
    if len({member.partition("=")[0] for member in members}) != len(members):
        return None
    return whole if all(_MEMBER.fullmatch(member) for member in members) else None


def _valid(pattern: re.Pattern[str], text: str) -> str | None:
    return text if pattern.fullmatch(text) else None
