"""Refusals that say when to come again are followed as OpenAI's client follows them, and hide nothing."""

from __future__ import annotations

import asyncio
import time

import pytest

from loadtests import client
from loadtests.streaming import Failure, Limits, Outcome
from shared.testing import answers
from shared.testing.answers import Answer
from shared.testing.upstream import Upstream

STALL_S = 30.0


class Time:
    """A clock on which waiting costs nothing: it takes the place of the module `time` in the client."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)

    def monotonic(self) -> float:
        return time.monotonic() + sum(self.waits_s)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()
    monkeypatch.setattr(client, "time", found)
    return found


async def asked(*scripted: Answer, retries: int = 2, total_s: float = 300.0) -> tuple[Outcome, int]:
    """The outcome of one request, and how often it was sent."""
    async with Upstream() as upstream:
        upstream.script(*scripted)
        pool = client.new_pool(connect_s=5, stall_s=STALL_S)
        limits = Limits(stall_s=STALL_S, total_s=total_s, retries=retries)
        try:
            outcome = await asyncio.to_thread(
                client.send, pool, f"{upstream.url}/v1/chat/completions", b"{}", {}, limits
            )
        finally:
            pool.clear()
        return outcome, len(upstream.exchanges)


def busy(wait: str | None, status: int = 503) -> Answer:
    return answers.failure(status, headers={} if wait is None else {"Retry-After": wait})


async def test_an_answer_after_waits_counts_from_the_first_sending(waiting: Time) -> None:
    """Longer than the silence that counts as a stall: a wait that was asked for is none."""
    outcome, sent = await asked(busy("40"), busy("20", 429), answers.stream("Pa", "ris"))
    assert (outcome.failure, outcome.told_to_wait, sent) == (None, 2, 3)
    assert waiting.waits_s == [40.0, 20.0]
    assert outcome.ttft_ms is not None
    assert outcome.ttft_ms > 60_000
    assert outcome.total_ms >= outcome.ttft_ms


async def test_who_is_refused_to_the_end_has_failed(waiting: Time) -> None:
    outcome, sent = await asked(busy("1"), busy("1"), busy("1"), answers.stream("late"))
    assert (outcome.failure, outcome.status, outcome.told_to_wait, sent) == (Failure.STATUS, 503, 2, 3)
    assert outcome.total_ms > 2_000


@pytest.mark.parametrize(
    "refusal",
    [busy(None), busy("0"), busy("-3"), busy("61"), busy("nan"), busy("soon"), busy("5", 500), busy("5", 400)],
)
async def test_what_names_no_time_to_come_again_is_a_failure_at_once(waiting: Time, refusal: Answer) -> None:
    outcome, sent = await asked(refusal, answers.stream("never"))
    assert (outcome.failure, outcome.told_to_wait, sent) == (Failure.STATUS, 0, 1)
    assert waiting.waits_s == []


async def test_a_refusal_that_no_wait_helps_is_a_failure_at_once(waiting: Time) -> None:
    final = answers.failure(503, headers={"Retry-After": "1", "x-should-retry": "false"})
    outcome, sent = await asked(final, answers.stream("never"))
    assert (outcome.failure, sent, waiting.waits_s) == (Failure.STATUS, 1, [])


async def test_no_wait_leads_past_the_limit_of_a_whole_answer(waiting: Time) -> None:
    outcome, sent = await asked(busy("50"), busy("50"), answers.stream("never"), total_s=90)
    assert (outcome.failure, outcome.told_to_wait, sent) == (Failure.STATUS, 1, 2)


async def test_without_retries_each_refusal_is_a_failure(waiting: Time) -> None:
    outcome, sent = await asked(busy("1"), answers.stream("never"), retries=0)
    assert (outcome.failure, sent, waiting.waits_s) == (Failure.STATUS, 1, [])
