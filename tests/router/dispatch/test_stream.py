"""Which bytes of a backend's stream may go on, and when a stream is whole."""

from __future__ import annotations

import itertools

import pytest

from router.dispatch.stream import StreamCheck
from shared.openai.sse import DONE
from shared.testing.answers import ERROR_EVENT, chunk, stream

BODY = stream("Pa", "ris", "🦀").body


def fed(*chunks: bytes) -> tuple[StreamCheck, bytes]:
    check = StreamCheck()
    passed = b"".join(itertools.chain.from_iterable(check.feed(each) for each in chunks))
    check.end()
    return check, passed


@pytest.mark.parametrize("at", range(1, len(BODY), 7))
def test_a_whole_stream_passes_however_it_is_cut(at: int) -> None:
    """SSE-01."""
    check, passed = fed(BODY[:at], BODY[at:])
    assert passed == BODY and check.done and check.failure is None and check.completion_tokens == 3


@pytest.mark.parametrize(
    "events",
    [
        [chunk(content="x")],
        [chunk(content="x"), DONE],
        [chunk(content="x"), chunk(finish="stop")],
        [chunk(content="x"), ERROR_EVENT, DONE],
        [chunk(content="x"), b"event: error\ndata: {}\n\n"],
        [chunk(content="x"), b"data: not json\n\n"],
        [chunk(content="x"), b'data: ["list"]\n\n'],
        [],
    ],
)
def test_everything_else_is_a_failure(events: list[bytes]) -> None:
    """SSE-05: `[DONE]` after an error, or without a finish reason, does not make a stream whole."""
    check, passed = fed(*events)
    assert check.failure is not None and not check.done
    assert b"".join(events).startswith(passed) and DONE not in passed and b"error" not in passed


def test_nothing_passes_after_done() -> None:
    check, passed = fed(BODY + chunk(content="late"), chunk(content="later"))
    assert passed == BODY and check.done


def test_an_empty_answer_that_is_finished_is_an_answer() -> None:
    check, _ = fed(chunk(role="assistant", content=""), chunk(finish="stop"), DONE)
    assert check.done and check.has_content


def test_an_endless_event_is_bounded() -> None:
    check = StreamCheck()
    for _ in range(80):
        assert check.feed(b"data: " + b"x" * 65536) == []
    assert check.failure is not None
