"""SSE-01: events are cut on bytes, whole, in order, wherever the network cuts them."""

from __future__ import annotations

import contextlib
import itertools

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import StreamBroken
from shared.openai.sse import DONE, KEEPALIVE, Burst, EventCutter, EventFacts, EventKind, read_burst, read_event
from shared.openai.stencil import Stencil

_TEXT = "杭州🦀é"


def _event(text: str, ending: bytes = b"\n\n", **choice: object) -> bytes:
    body = orjson.dumps({"choices": [{"index": 0, "delta": {"content": text}, **choice}]})
    return b"data: " + body + ending


def _stream(ending: bytes) -> list[bytes]:
    done = b"data: [DONE]" + ending
    return [_event(_TEXT, ending), b": keep-alive" + ending, _event("x\\n", ending, finish_reason="stop"), done]


@pytest.mark.parametrize("ending", [b"\n\n", b"\r\n\r\n"])
def test_sse_01_every_cut_position_gives_the_same_events(ending: bytes) -> None:
    """Every pair of pieces, also inside the four bytes of the crab and inside the blank line."""
    events = _stream(ending)
    whole = b"".join(events)
    for cut in range(len(whole) + 1):
        cutter = EventCutter()
        got = [*cutter.feed(whole[:cut]), *cutter.feed(whole[cut:])]
        assert got == events
        assert cutter.rest == b""


@pytest.mark.parametrize("ending", [b"\n\n", b"\r\n\r\n"])
def test_sse_01_one_byte_at_a_time(ending: bytes) -> None:
    events = _stream(ending)
    cutter = EventCutter()
    got = [event for byte in b"".join(events) for event in cutter.feed(bytes([byte]))]
    assert got == events
    content = orjson.loads(read_data(got[0]))["choices"][0]["delta"]["content"]
    assert content == _TEXT
    assert "�" not in content


def read_data(event: bytes) -> bytes:
    return event.removeprefix(b"data: ").strip()


@given(
    st.lists(st.text(st.characters(exclude_characters="\x00", codec="utf-8"), max_size=20), max_size=8),
    st.lists(st.integers(0, 4096), max_size=12),
)
def test_sse_01_no_byte_is_lost_or_added_for_any_cuts(texts: list[str], cuts: list[int]) -> None:
    events = [_event(text) for text in texts]
    whole = b"".join(events)
    edges = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    cutter = EventCutter()
    got = [event for a, b in itertools.pairwise(edges) for event in cutter.feed(whole[a:b])]
    assert got == events
    assert cutter.rest == b""


@pytest.mark.parametrize(
    ("first", "second"),
    [pair for pair in itertools.product([b"\n", b"\r\n", b"\r"], repeat=2) if b"".join(pair) != b"\r\n"],
)  # a carriage return and a line feed are one end of a line
def test_sse_01_lines_may_end_in_any_way_and_not_alike(first: bytes, second: bytes) -> None:
    """Every cut of a stream of two events gives both, the last one too, and no blank line is found within a line."""
    event = b": a" + first + b'data: {"choices":[{"text":"hi"}]}' + first + second
    whole = event + event + b"data: [DONE]\n\n"
    for cut in range(len(whole)):
        cutter = EventCutter()
        got = [*cutter.feed(whole[:cut]), *cutter.feed(whole[cut:])]
        assert b"".join(got) == whole
        assert [read_event(each).kind for each in got] == [EventKind.CONTENT, EventKind.CONTENT, EventKind.DONE]


def test_an_unfinished_event_is_kept_apart() -> None:
    cutter = EventCutter()
    assert cutter.feed(_event("a") + b'data: {"cho') == [_event("a")]
    assert cutter.rest == b'data: {"cho'


def test_an_event_without_end_breaks_the_stream_at_its_bound() -> None:
    cutter = EventCutter(max_event_bytes=1000)
    assert cutter.feed(b"x" * 1000) == []
    with pytest.raises(StreamBroken):
        cutter.feed(b"x")


@pytest.mark.parametrize(
    ("event", "facts"),
    [
        (_event("hi"), EventFacts(EventKind.CONTENT)),
        (_event(""), EventFacts(EventKind.OPENING)),
        (b'data: {"choices":[{"delta":{"role":"assistant"}}]}\n\n', EventFacts(EventKind.OPENING)),
        (b'data: {"choices":[{"delta":{"role":"assistant","content":null}}]}\n\n', EventFacts(EventKind.OPENING)),
        (b'data: {"choices":[]}\n\n', EventFacts(EventKind.OPENING)),
        (b'data: {"choices":[{"text":"hi"}]}\n\n', EventFacts(EventKind.CONTENT)),
        (b'data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}\n\n', EventFacts(EventKind.CONTENT)),
        (b'data: {"choices":[{"delta":{"reasoning_content":"a"}}]}\n\n', EventFacts(EventKind.CONTENT)),
        (b'data: {"choices":[{"delta":{"refusal":"no"}}]}\n\n', EventFacts(EventKind.CONTENT)),
        (_event("", finish_reason="length"), EventFacts(EventKind.CONTENT, finished=True)),
        (b'data: {"choices":[],"usage":{"a":3}}\n\n', EventFacts(EventKind.CONTENT, usage={"a": 3})),
        (b'data: {"choices":[{"delta":{"role":"assistant","content":""}}],"usage":{"a":3}}\n\n',
         EventFacts(EventKind.OPENING)),
        (b'data: {"choices":[{"delta":{"content":"x"}}],"usage":{"a":3}}\n\n',
         EventFacts(EventKind.CONTENT, usage={"a": 3})),
        (b'data: {"error":{"message":"x"}}\n\n', EventFacts(EventKind.ERROR)),
        (b'event: error\rdata: {"message":"x"}\r\r', EventFacts(EventKind.ERROR)),
        (b'event: error\ndata: {"message":"x"}\n\n', EventFacts(EventKind.ERROR)),
        (b'event: error\r\ndata: {"message":"x"}\r\n\r\n', EventFacts(EventKind.ERROR)),
        (DONE, EventFacts(EventKind.DONE)),
        (b"data:[DONE]\r\n\r\n", EventFacts(EventKind.DONE)),
        (KEEPALIVE, EventFacts(EventKind.COMMENT)),
        (b":\n\n", EventFacts(EventKind.COMMENT)),
        (b"retry: 500\n\n", EventFacts(EventKind.COMMENT)),
        (b'data: {"choices":\ndata: [{"text":"hi"}]}\n\n', EventFacts(EventKind.CONTENT)),
    ],
)  # fmt: skip
def test_what_an_event_means(event: bytes, facts: EventFacts) -> None:
    assert read_event(event) == facts


@pytest.mark.parametrize("data", [b"{", b"[1]", b"hello", b'"text"', b"5", b"null"])
def test_data_that_is_no_object_breaks_the_stream(data: bytes) -> None:
    with pytest.raises(StreamBroken) as caught:
        read_event(b"data: " + data + b"\n\n")
    assert "hello" not in caught.value.message


@given(st.binary(max_size=120))
def test_any_event_is_classified_or_breaks_the_stream(raw: bytes) -> None:
    with contextlib.suppress(StreamBroken):
        assert isinstance(read_event(raw + b"\n\n").kind, EventKind)


def test_a_burst_says_what_its_events_say_one_by_one() -> None:
    usage = b'data: {"choices":[],"usage":{"completion_tokens":2}}\n\n'
    burst = _event("") + _event("a") + _event("b") + _event("", finish_reason="stop") + usage
    assert read_burst(burst, Stencil()) == Burst(5, 4, finished=True, usage={"completion_tokens": 2})


@pytest.mark.parametrize(
    "data",
    [
        _event("a") + DONE,
        _event("a") + KEEPALIVE,
        _event("a") + b'data: {"error":{"message":"x"}}\n\n',
        _event("a") + b"data: {oops}\n\n",
        _event("a") + b'data: {"a":1},{"b":2}\n\n',
        _event("a") + b'data: {"a":\n\ndata: 1}\n\n',
        _event("a").replace(b"\n", b"\r\n"),
        _event("a")[:-1],
        b"event: error\n" + _event("a"),
        b"",
    ],
)
def test_whatever_else_is_no_burst(data: bytes) -> None:
    assert read_burst(data, Stencil()) is None
