"""Streams that wait for their first event: comments meanwhile, the failure's status while nothing was sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from cloud.streams import KEEPALIVE, EventStream
from shared.errors import NotReady


class Source:
    """Events on demand; `closed` once its reader gave up."""

    def __init__(self, *events: bytes | Exception) -> None:
        self._events = events
        self.gate = asyncio.Event()
        self.closed = False

    async def events(self) -> AsyncGenerator[bytes, None]:
        try:
            await self.gate.wait()
            for event in self._events:
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.closed = True


async def test_a_prompt_stream_has_no_comments() -> None:
    source = Source(b"a", b"b")
    source.gate.set()
    stream = EventStream(source.events(), 60)
    await stream.open()
    assert [event async for event in stream] == [b"a", b"b"]


async def test_silence_before_the_first_event_is_filled_with_comments() -> None:
    source = Source(b"a")
    stream = EventStream(source.events(), 0.001)
    await stream.open()
    seen = []
    async for event in stream:
        seen.append(event)
        if len(seen) == 3:
            source.gate.set()
    assert seen[:3] == [KEEPALIVE] * 3
    assert seen[-1] == b"a"


async def test_without_comments_opening_waits() -> None:
    source = Source(b"a")
    stream = EventStream(source.events(), 0)
    opening = asyncio.ensure_future(stream.open())
    await asyncio.sleep(0)
    assert not opening.done()
    source.gate.set()
    await opening
    assert [event async for event in stream] == [b"a"]


async def test_a_failure_before_anything_was_sent_is_raised_by_open_and_later_by_the_stream() -> None:
    early = Source(NotReady("no"))
    early.gate.set()
    with pytest.raises(NotReady):
        await EventStream(early.events(), 60).open()
    late = Source(NotReady("no"))
    stream = EventStream(late.events(), 0.001)
    await stream.open()
    late.gate.set()
    with pytest.raises(NotReady):
        async for event in stream:
            assert event == KEEPALIVE


async def test_a_client_that_leaves_while_it_waits_ends_the_request() -> None:
    """RY-01: also before the first event."""
    source = Source(b"a")
    stream = EventStream(source.events(), 0.001)
    await stream.open()
    reading = stream.__aiter__()
    assert await anext(reading) == KEEPALIVE
    await reading.aclose()
    assert source.closed
    other = Source(b"a")
    opening = asyncio.ensure_future(EventStream(other.events(), 60).open())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert other.closed
