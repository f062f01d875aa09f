"""One streamed answer is judged by arrival times, and fails in exactly one way."""

from __future__ import annotations

import pytest

from loadtests.streaming import Failure, Limits, StreamMeter
from shared.openai.sse import DONE, KEEPALIVE
from shared.testing import answers

LIMITS = Limits(stall_s=30, total_s=300)


def meter() -> StreamMeter:
    return StreamMeter(started_s=100.0, limits=LIMITS)


def test_time_to_first_token_is_the_first_content_not_the_role_chunk() -> None:
    m = meter()
    m.feed(answers.chunk(role="assistant", content=""), 100.01)
    m.feed(answers.chunk(content="Pa"), 100.5)
    m.feed(answers.chunk(content="ris"), 101.0)
    m.feed(answers.chunk(finish="stop"), 101.5)
    m.feed(answers.chunk(usage=3), 101.5)
    assert not m.is_over
    m.feed(DONE, 102.5)
    outcome = m.outcome(tier="edge")
    assert m.is_over
    assert outcome.failure is None
    assert outcome.ttft_ms == pytest.approx(500)
    assert outcome.total_ms == pytest.approx(2500)
    assert outcome.output_tokens == 3
    assert outcome.tpot_ms == pytest.approx(250), "text spans 500 ms; the closing events carry none"
    assert outcome.content_ms == outcome.ttft_ms
    assert outcome.tier == "edge"


def test_reasoning_is_the_first_text_but_not_the_answer() -> None:
    m = meter()
    reasoning = b'data: {"choices": [{"index": 0, "delta": {"reasoning_content": "Hm"}, "finish_reason": null}]}\n\n'
    m.feed(reasoning, 100.2)
    m.feed(answers.chunk(content="Paris"), 101.0)
    m.feed(DONE, 101.1)
    assert m.outcome().ttft_ms == pytest.approx(200)
    assert m.outcome().content_ms == pytest.approx(1000)


def test_an_answer_without_text_has_no_first_text() -> None:
    m = meter()
    m.feed(answers.chunk(role="assistant", content="") + answers.chunk(finish="stop") + DONE, 100.2)
    assert m.outcome().failure is None
    assert m.outcome().ttft_ms is None


def test_silences_between_texts_are_measured_and_long_ones_counted() -> None:
    m = meter()
    for at_s in (100.5, 100.6, 102.0, 102.1, 104.5):
        m.feed(answers.chunk(content="A"), at_s)
    m.feed(DONE, 120.0)
    assert m.outcome().longest_gap_ms == pytest.approx(2400)
    assert m.outcome().stalls == 2, "the wait for the first text and for the end are none"


@pytest.mark.parametrize("usage", ["true", "-1", "2.5", '"7"', "null"])
def test_a_count_of_tokens_that_is_none_is_not_believed(usage: str) -> None:
    m = meter()
    m.feed(answers.chunk(content="A"), 100.1)
    m.feed(f'data: {{"choices": [], "usage": {{"completion_tokens": {usage}}}}}\n\n'.encode() + DONE, 100.2)
    assert m.outcome().output_tokens is None
    assert m.outcome().tpot_ms is None


def test_usage_in_every_chunk_hides_no_text() -> None:
    chunk = b'data: {"choices": [{"index": 0, "delta": {"content": "A"}}], "usage": {"completion_tokens": %d}}\n\n'
    m = meter()
    for tokens in (1, 2, 3):
        m.feed(chunk % tokens, 100.0 + tokens)
    m.feed(DONE, 103.0)
    assert m.outcome().ttft_ms == pytest.approx(1000)
    assert m.outcome().tpot_ms == pytest.approx(1000)


@pytest.mark.parametrize("tokens", [None, 1])
def test_time_per_token_needs_usage_and_two_tokens(tokens: int | None) -> None:
    m = meter()
    m.feed(answers.chunk(content="Paris"), 100.5)
    if tokens is not None:
        m.feed(answers.chunk(usage=tokens), 101)
    m.feed(DONE, 101)
    assert m.outcome().tpot_ms is None
    assert m.outcome().failure is None


def test_content_split_between_reads_counts_when_its_event_is_whole() -> None:
    whole = answers.chunk(content="🦀")
    m = meter()
    m.feed(whole[:-5], 100.1)
    m.feed(whole[-5:] + DONE, 100.4)
    assert m.outcome().ttft_ms == pytest.approx(400)


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (b"", Failure.NO_DONE),
        (answers.chunk(finish="stop"), Failure.NO_DONE),
        (answers.ERROR_EVENT, Failure.ERROR_EVENT),
        (answers.ERROR_EVENT + DONE, Failure.ERROR_EVENT),
        (b"event: error\ndata: {}\n\n", Failure.ERROR_EVENT),
        (b"data: not json\n\n", Failure.MALFORMED),
        (b'data: {"choices": [{"delta": {"con', Failure.MALFORMED),
    ],
)
def test_a_body_that_ends_properly_fails_in_one_way(tail: bytes, expected: Failure) -> None:
    m = meter()
    m.feed(answers.chunk(content="A"), 100.1)
    if tail:
        m.feed(tail, 100.2)
    m.end(100.3)
    assert m.outcome().failure is expected


def test_the_first_judgement_stands() -> None:
    m = meter()
    m.feed(answers.ERROR_EVENT, 100.1)
    m.end(100.2, Failure.CONNECTION_CUT)
    assert m.outcome().failure is Failure.ERROR_EVENT
    assert m.outcome().total_ms == pytest.approx(100)


def test_an_end_after_done_changes_nothing() -> None:
    m = meter()
    m.feed(answers.chunk(content="A") + DONE, 100.1)
    m.end(100.2, Failure.CONNECTION_CUT)
    assert m.outcome().failure is None


def test_keepalives_are_no_progress() -> None:
    m = meter()
    m.feed(answers.chunk(content="A"), 101)
    m.feed(KEEPALIVE, 116)
    assert not m.is_over
    m.feed(KEEPALIVE, 131.5)
    assert m.outcome().failure is Failure.STALL


def test_content_without_end_is_bounded() -> None:
    m = meter()
    now_s = 100.0
    while not m.is_over:
        now_s += 10
        m.feed(answers.chunk(content="A"), now_s)
    assert m.outcome().failure is Failure.TOO_LONG
    assert now_s == 410
