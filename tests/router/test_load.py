"""Many clients at once, a third of them leaving at random: nothing stays counted, open or running."""

from __future__ import annotations

import asyncio
import random
import time

import aiohttp

from shared.testing import answers
from shared.testing.upstream import Upstream
from tests.router.conftest import PERSONAL_TEXT, PUBLIC_TEXT, RunningRouter, StartRouter, eventually

CLIENTS = 50
DURATION_S = 4.0


async def _client(router: RunningRouter, draw: random.Random, until_s: float, served: list[str]) -> None:
    async with aiohttp.ClientSession() as session:
        router = RunningRouter(router.router, router.url, session, router.audit_dir)
        while time.monotonic() < until_s:
            stream, leaves = draw.random() < 0.7, draw.random() < 1 / 3
            text = PERSONAL_TEXT if draw.random() < 0.3 else PUBLIC_TEXT
            route = draw.choice(["auto", "edge", "cloud"])
            headers = {"x-isthmus-route": route}
            if not leaves:
                async with router.ask(text, stream=stream, headers=headers) as response:
                    body = await response.read()
                    assert response.status == 200 or (text is PERSONAL_TEXT and route == "cloud"), body
                    if response.status == 200:
                        served.append(response.headers["x-isthmus-tier"])
                continue
            task = asyncio.create_task(_ask_and_read(router, text, stream, headers))
            await asyncio.sleep(draw.random() * 0.1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _ask_and_read(router: RunningRouter, text: str, stream: bool, headers: dict[str, str]) -> None:
    async with router.ask(text, stream=stream, headers=headers) as response:
        await response.read()


async def test_fifty_clients_leave_nothing_behind(start_router: StartRouter, edge: Upstream, cloud: Upstream) -> None:
    """RL-01, SSE-03, RY-01: gauges return to zero, no task or upstream request is left, both tiers still answer."""

    def answer(exchange: object) -> answers.Answer:
        wants_stream = b'"stream":true' in exchange.body  # type: ignore[attr-defined]
        return answers.stream(*"abcdefgh", gap_s=0.01) if wants_stream else answers.completion(after_s=0.05)

    edge.default = cloud.default = answer
    router = await start_router(
        clouds=[{"id": "cloud-1", "url": cloud.url}], policy={"stale_after_ms": 600_000}, limits={"in_flight": 200}
    )
    await router.report(edge)
    await eventually(lambda: all(b.state == "ready" for b in router.router.directory.snapshot().backends))
    tasks_before = len(asyncio.all_tasks())
    served: list[str] = []
    until_s = time.monotonic() + DURATION_S
    async with asyncio.TaskGroup() as group:
        for n in range(CLIENTS):
            group.create_task(_client(router, random.Random(n), until_s, served))
    await eventually(lambda: router.in_flight() == 0 and router.metric("isthmus_router_in_flight") == 0)
    await eventually(lambda: router.router.lifecycle.in_flight == 0)
    await eventually(lambda: all(e.ended.is_set() for e in (*edge.exchanges, *cloud.exchanges)))
    assert {"edge", "cloud"} <= set(served)
    for route in ("edge", "cloud"):
        async with router.ask(headers={"x-isthmus-route": route}) as response:
            assert response.status == 200 and response.headers["x-isthmus-tier"] == route
    cancelled = router.metric("isthmus_router_cancelled_total")
    assert cancelled > 0
    # Idle connections keep one handler task each in this shared loop; they close with the sessions above.
    await eventually(lambda: len(asyncio.all_tasks()) <= tasks_before + 60)
    assert not any(b"4111" in e.body for e in cloud.exchanges)
