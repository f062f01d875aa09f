"""A rule may ask a second backend when the first is silent: the first content wins, the other backend is let go."""

from __future__ import annotations

import asyncio
from pathlib import Path

from shared.openai.sse import DONE
from shared.testing import answers
from shared.testing.upstream import Upstream
from tests.router.conftest import PERSONAL_TEXT, RunningRouter, StartRouter, eventually

HEDGE = "rules: [{name: hedge, act: {hedge_ms: 50}}]\n"


async def _router(start_router: StartRouter, folder: Path, cloud: Upstream, **more: object) -> RunningRouter:
    path = folder / "policy.yaml"
    path.write_text(HEDGE)
    return await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], policy={"file": path}, **more)


async def test_a_silent_backend_loses_to_the_second(
    start_router: StartRouter, tmp_path: Path, edge: Upstream, cloud: Upstream
) -> None:
    router = await _router(start_router, tmp_path, cloud)
    await router.report(edge)
    edge.script(answers.silence(headers_sent=True))
    good = answers.stream("Pa", "ris")
    cloud.script(good)
    async with router.ask(stream=True) as response:
        assert await response.read() == good.body
        assert response.headers["x-isthmus-backend"] == "cloud-1"
    await edge.exchanges[0].wait_ended(2.0)
    [record] = await router.records(1)
    assert [a["outcome"] for a in record["attempts"]] == ["hedge_lost", "ok"]
    assert router.metric("isthmus_router_attempts_total", tier="edge", outcome="hedge_lost") == 1
    await eventually(lambda: router.in_flight() == 0)


async def test_the_first_may_still_win(
    start_router: StartRouter, tmp_path: Path, edge: Upstream, cloud: Upstream
) -> None:
    router = await _router(start_router, tmp_path, cloud)
    await router.report(edge)
    edge.script(answers.stream("Pa", gap_s=0.3))
    cloud.script(answers.silence())
    async with router.ask(stream=True) as response:
        assert (await response.read()).endswith(DONE)
        assert response.headers["x-isthmus-backend"] == "edge-1"
    await cloud.exchanges[0].wait_ended(2.0)
    [record] = await router.records(1)
    assert [(a["backend"], a["outcome"]) for a in record["attempts"]] == [("cloud-1", "hedge_lost"), ("edge-1", "ok")]


async def test_a_quick_answer_asks_nobody_else(
    start_router: StartRouter, tmp_path: Path, edge: Upstream, cloud: Upstream
) -> None:
    router = await _router(start_router, tmp_path, cloud)
    await router.report(edge)
    async with router.ask(stream=True) as response:
        await response.read()
    assert len(edge.exchanges) == 1 and not cloud.exchanges


async def test_a_hedge_never_crosses_privacy(
    start_router: StartRouter, tmp_path: Path, edge: Upstream, cloud: Upstream
) -> None:
    router = await _router(start_router, tmp_path, cloud)
    await router.report(edge)
    edge.script(answers.stream("Pa", gap_s=0.3))
    async with router.ask(PERSONAL_TEXT, stream=True) as response:
        assert (await response.read()).endswith(DONE)
    assert not cloud.exchanges


async def test_hedges_are_paid_from_the_retry_budget(
    start_router: StartRouter, tmp_path: Path, edge: Upstream, cloud: Upstream
) -> None:
    router = await _router(start_router, tmp_path, cloud, retry={"budget_ratio": 0.0, "floor_per_10s": 0})
    await router.report(edge)
    edge.script(answers.stream("Pa", gap_s=0.3))
    async with router.ask(stream=True) as response:
        assert (await response.read()).endswith(DONE)
    assert not cloud.exchanges


async def test_both_failing_is_one_failure(
    start_router: StartRouter, tmp_path: Path, edge: Upstream, cloud: Upstream
) -> None:
    router = await _router(start_router, tmp_path, cloud, timeouts={"first_token_s": 0.2})
    await router.report(edge)
    edge.script(answers.silence())
    cloud.script(answers.silence())
    async with router.ask(stream=True) as response:
        assert response.status == 504
    [record] = await router.records(1)
    assert [a["outcome"] for a in record["attempts"]] == ["first_token_timeout"] * 2
    assert len(edge.exchanges) == len(cloud.exchanges) == 1


async def test_clients_that_leave_at_once_leave_nothing_counted(
    start_router: StartRouter, tmp_path: Path, edge: Upstream, cloud: Upstream
) -> None:
    """RL-01: also an attempt that was cancelled before it ran its first step is given back."""
    router = await _router(start_router, tmp_path, cloud)
    await router.report(edge)
    edge.default = cloud.default = lambda _: answers.silence()
    for n in range(40):
        asked = asyncio.create_task(router.ask(stream=True).__aenter__())
        await asyncio.sleep(0.002 * (n % 8))
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
    await eventually(lambda: router.in_flight() == 0 and router.metric("isthmus_router_in_flight") == 0)
