"""`isthmus router decisions`, `drain` and `resume` speak to a running router over the admin API."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from router.admin_console import AdminClient, show_decisions
from shared.errors import IsthmusError
from shared.keys import generate, hashed
from shared.testing.upstream import Upstream
from tests.router.conftest import PERSONAL_TEXT, RunningRouter, StartRouter


async def test_drain_and_resume(start_router: StartRouter, edge: Upstream) -> None:
    router = await start_router()
    await router.report(edge)
    client = AdminClient(router.url, None)
    await asyncio.to_thread(client.drain, "edge-1")
    async with router.ask() as answer:
        assert answer.status == 503
    await asyncio.to_thread(client.resume, "edge-1")
    async with router.ask() as answer:
        assert answer.status == 200
    with pytest.raises(IsthmusError, match="no backend of that name"):
        await asyncio.to_thread(client.drain, "a b")


async def test_decisions_are_shown_and_followed(
    start_router: StartRouter, edge: Upstream, capsys: pytest.CaptureFixture[str]
) -> None:
    router = await start_router()
    await router.report(edge)
    await _ask(router, "Hello")
    client, seen = AdminClient(router.url, None), asyncio.Queue[dict[str, Any]]()
    loop = asyncio.get_running_loop()

    def follow() -> None:
        for each in client.follow():
            loop.call_soon_threadsafe(seen.put_nowait, each)
            return

    following = asyncio.create_task(asyncio.to_thread(follow))
    while not following.done():
        await _ask(router, PERSONAL_TEXT)
        await asyncio.sleep(0.05)
    assert (await seen.get())["class"] == "personal"
    wanted = {"class": "personal", "tier": "edge", "reason": None}
    await asyncio.to_thread(show_decisions, client, wanted, 5, follow=False, as_json=True)
    rows = [orjson.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith('{"seq"')]
    assert {row["class"] for row in rows} == {"personal"}


async def test_who_may_not_see_is_told_why(start_router: StartRouter) -> None:
    key = generate()
    router = await start_router(keys=[{"name": "caller", "sha256": hashed(key), "scopes": ["inference"]}])
    with pytest.raises(IsthmusError, match=r"403.*admin:read"):
        await asyncio.to_thread(AdminClient(router.url, key).decisions, {}, 5)


async def _ask(router: RunningRouter, text: str) -> None:
    async with router.ask(text) as answer:
        await answer.read()
