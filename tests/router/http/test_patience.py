"""A device that is slow as its decision foresaw is waited for; one that is frozen is not."""

from __future__ import annotations

import asyncio
import time

import pytest

from shared.fleet import Breaker
from shared.openai.sse import DONE
from shared.testing import answers
from shared.testing.upstream import Upstream
from tests.router.conftest import PERSONAL_TEXT, RunningRouter, StartRouter

SLOW = {"prefill_tokens_per_s": 10.0, "decode_tokens_per_s": 10.0, "slots_total": 1, "slots_busy": 0, "queued": 0}
"""Is expected to read the prompt of these tests in more than a second."""


async def _router(start_router: StartRouter, cloud: Upstream, **timeouts: float) -> RunningRouter:
    return await start_router(
        clouds=[{"id": "cloud-1", "url": cloud.url}],
        timeouts={"first_token_s": 0.3, **timeouts},
        policy={"stale_after_ms": 500},
    )


async def _beats(router: RunningRouter, edge: Upstream) -> None:
    while True:
        await router.report(edge, **SLOW)
        await asyncio.sleep(0.1)


async def test_fo_07_a_first_token_that_was_predicted_to_be_late_is_waited_for(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    """Three of them in a row, each of which would have been a failure: no breaker opens."""
    router = await _router(start_router, cloud)
    beats = asyncio.create_task(_beats(router, edge))
    await router.report(edge, **SLOW)
    edge.default = lambda _: answers.stream("Pa", gap_s=0.5)
    for _ in range(3):
        async with router.ask(PERSONAL_TEXT, stream=True) as response:
            assert response.status == 200 and (await response.read()).endswith(DONE)
    beats.cancel()
    records = await router.records(3)
    assert [[a["outcome"] for a in record["attempts"]] for record in records] == [["ok"]] * 3
    assert all(record["decision"]["candidates"][0]["predicted_ttft_ms"] > 1_000 for record in records)
    assert router.router.directory.snapshot().backends[-1].breaker is Breaker.CLOSED


async def test_one_that_reports_and_gives_nothing_is_cut_at_the_prediction_times_the_ratio(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    """FO-07: an engine that is frozen behind an agent that is not."""
    router = await _router(start_router, cloud, first_token_most_s=0.8)
    beats = asyncio.create_task(_beats(router, edge))
    await router.report(edge, **SLOW)
    edge.script(answers.silence(headers_sent=True))
    began_s = time.monotonic()
    async with router.ask(PERSONAL_TEXT, stream=True) as response:
        assert response.status == 503, "and never at a cloud"
    beats.cancel()
    assert time.monotonic() - began_s >= 0.8
    [record] = await router.records(1)
    assert [a["outcome"] for a in record["attempts"]] == ["first_token_timeout"]
    assert not cloud.inference_connections


@pytest.mark.parametrize("beats", [False, True])
async def test_silence_ends_what_is_waited_for_beyond_the_plain_limit(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, beats: bool
) -> None:
    """A device that is frozen as a whole is found out as soon as its reports are stale."""
    router = await _router(start_router, cloud)
    await router.report(edge, **SLOW)
    beating = asyncio.create_task(_beats(router, edge)) if beats else None
    edge.script(answers.stream("Pa", gap_s=0.7))
    async with router.ask(PERSONAL_TEXT, stream=True) as response:
        assert response.status == (200 if beats else 503)
    if beating is not None:
        beating.cancel()
    [record] = await router.records(1)
    assert record["attempts"][0]["outcome"] == ("ok" if beats else "first_token_timeout")
    assert beats or record["attempts"][0]["duration_ms"] < 680


async def test_a_cloud_has_the_plain_limit(start_router: StartRouter, edge: Upstream, cloud: Upstream) -> None:
    router = await _router(start_router, cloud)
    cloud.script(answers.stream("Pa", gap_s=0.7))
    async with router.ask(stream=True) as response:
        assert response.status == 504
    assert not edge.exchanges
