"""Frames: the same events come out, however the network cut them; whoever is no replica is found out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.direct.frames import GREETING_BYTES, MAX_EVENT_BYTES, Malformed, Reader, frame

GREETING = bytes(range(GREETING_BYTES))


def test_a_frame_is_laid_out_as_written_down() -> None:
    assert frame(258, b"ab") == bytes([0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 2]) + b"ab"
    assert frame(1, b"") == bytes([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0])


@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.binary(max_size=40)), max_size=8),
    st.lists(st.integers(1, 30), min_size=1, max_size=8),
)
def test_events_survive_any_cut(events: list[tuple[int, bytes]], cuts: list[int]) -> None:
    wire = GREETING + b"".join(frame(stream, event) for stream, event in events)
    reader, seen, at, turn = Reader(GREETING), [], 0, 0
    while at < len(wire):
        step = cuts[turn % len(cuts)]
        seen += list(reader.feed(wire[at : at + step]))
        at, turn = at + step, turn + 1
    assert seen == events
    assert reader.greeted


@pytest.mark.parametrize("changed", [0, GREETING_BYTES - 1])
def test_a_wrong_greeting_is_refused_and_nothing_behind_it_read(changed: int) -> None:
    wrong = bytearray(GREETING)
    wrong[changed] ^= 1
    reader = Reader(GREETING)
    with pytest.raises(Malformed):
        list(reader.feed(bytes(wrong) + frame(1, b"x")))
    assert not reader.greeted


def test_an_event_that_no_engine_makes_is_refused_before_it_is_held() -> None:
    reader = Reader(GREETING)
    with pytest.raises(Malformed):
        list(reader.feed(GREETING + frame(1, b"")[:8] + (MAX_EVENT_BYTES + 1).to_bytes(4, "big")))
