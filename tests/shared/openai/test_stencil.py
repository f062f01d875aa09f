"""What is told of an event by its form alone is what reading it would have told."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import StreamBroken
from shared.openai.sse import Burst, EventKind, read_burst, read_event
from shared.openai.stencil import Stencil


def _event(content: Any, *, finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"role": "assistant", "content": content}, "finish_reason": finish}
    return b"data: " + orjson.dumps({"id": "c", "choices": [choice], **more}) + b"\n\n"


_PREFIX, _, _SUFFIX = _event("%").partition(b'"%"')


def _one_by_one(events: list[bytes]) -> Burst | None:
    """What `read_event` says of them; None where one of them is no good event."""
    content, finished, usage = 0, False, None
    for event in events:
        try:
            facts = read_event(event)
        except StreamBroken:
            return None
        if facts.kind not in (EventKind.CONTENT, EventKind.OPENING):
            return None
        content += facts.kind is EventKind.CONTENT
        finished, usage = finished or facts.finished, facts.usage or usage
    return Burst(len(events), content, finished, usage)


_EVENTS = st.one_of(
    st.builds(
        _event,
        st.one_of(st.text(), st.none(), st.integers(-(2**63), 2**63), st.lists(st.text(), max_size=2), st.booleans()),
    ),
    st.builds(lambda text: _event(text, finish="stop"), st.text()),
    st.builds(lambda text: _event(text, usage={"completion_tokens": 1}), st.text()),
    st.builds(lambda text: _event(text, error={"message": "x"}), st.text()),
    # Whatever may stand where the words do: also what is no JSON, or more than one value.
    st.builds(lambda between: _PREFIX + between + _SUFFIX, st.text('",[]{}:\\\n\r a1u', max_size=8).map(str.encode)),
)


@given(warm=st.booleans(), chunks=st.lists(st.lists(_EVENTS, min_size=1, max_size=5), min_size=1, max_size=4))
def test_bursts_say_what_their_events_say_one_by_one(warm: bool, chunks: list[list[bytes]]) -> None:
    stencil = Stencil()
    if warm:
        assert read_burst(_event("a"), stencil) == Burst(1, 1, finished=False, usage=None)
    for events in chunks:
        found = read_burst(b"".join(events), stencil)
        assert found is None or found == _one_by_one(events)
        if found is None and all(b"\r" not in event and event.count(b"\n") == 2 for event in events):
            assert _one_by_one(events) is None


@pytest.mark.parametrize(
    "between",
    [
        (b'"a"', b'"b","c"'), (b'["a"', b'"b"]', b'"c","d"'), (b'"a\\"', b'","x"'), (b'"a', b'b"', b'"c","d"'),
        (b'""', b'"a"'), (b'"\xff"',), (b'"\\ud800"',), (b"1",), (b"null",), (b'{"a":1}',), (b"",),
    ],
)  # fmt: skip
def test_values_that_only_together_are_good_are_not(between: tuple[bytes, ...]) -> None:
    """No event borrows from the next what it lacks."""
    stencil = Stencil()
    read_burst(_event("a"), stencil)
    events = [_PREFIX + each + _SUFFIX for each in between]
    assert read_burst(b"".join(events), stencil) == _one_by_one(events)


@pytest.mark.parametrize(
    "first",
    [
        b'data: {"id":"\\"content\\":\\"a\\"","choices":[{"delta":{"content":"b"},"finish_reason":null}]}\n\n',
        b'data: {"content":"a","choices":[{"delta":{"content":"b"},"finish_reason":null}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"b"},"x":{"content":"c"},"finish_reason":null}]}\n\n',
    ],
)
def test_the_words_are_those_of_the_choice(first: bytes) -> None:
    """Another value of that name must not be taken for them: it may be empty, or change, while the words do not."""
    stencil = Stencil()
    read_burst(first, stencil)
    for changed in (first.replace(b'"a"', b'""'), first.replace(b'"b"', b'""'), first.replace(b'"c"', b"{}")):
        assert read_burst(changed, stencil) == _one_by_one([changed])


def test_a_stream_that_writes_no_event_like_the_last_is_read_as_ever() -> None:
    stencil = Stencil()
    for n in range(20):
        assert read_burst(_event("a", nonce=n), stencil) == Burst(1, 1, finished=False, usage=None)
