"""A router that nothing but privacy keeps from its cloud: canaries are sent through it, and the cloud records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from router.audit.storage import AuditStorage
from shared.testing import answers
from shared.testing.answers import Answer, Write
from shared.testing.upstream import Exchange, Upstream, good_answer
from tests.router.conftest import RunningRouter, StartRouter, eventually
from tests.router.http.test_other_apis import WHOLE
from tests.router.leaks.canaries import Canary

MASKING = {"public": "any", "personal": "mask", "secret": "mask", "unknown": "edge_only"}
FOUND_CLASSES = {"personal", "secret"}
_AT_ONCE = 12


def _in_kind(exchange: Exchange) -> Answer:
    """A good answer of the API that was asked."""
    whole = WHOLE.get(exchange.path)
    return (
        good_answer(exchange) if whole is None else Answer(headers=answers.JSON, writes=(Write(orjson.dumps(whole)),))
    )


async def send_all(router: RunningRouter, sent: list[Canary]) -> list[tuple[int, str | None, str | None]]:
    """Status, class and tier of the answer to each canary."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(canary: Canary) -> tuple[int, str | None, str | None]:
        async with gate, router.send(canary.raw, path=canary.path) as response:
            await response.read()
            headers = response.headers
            return response.status, headers.get("x-isthmus-class"), headers.get("x-isthmus-tier")

    return await asyncio.gather(*map(one, sent))


@asynccontextmanager
async def watched(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, **settings: Any
) -> AsyncIterator[RunningRouter]:
    """A router whose cloud is ready, cheap and preferred: nothing but privacy keeps a request from it."""
    policy = {"mode": "prefer_cloud", "stale_after_ms": 600_000, **settings.pop("policy", {})}
    settings["scan"] = {"timeout_s": 20, **settings.get("scan", {})}  # a busy machine is none of the faults
    for upstream in (edge, cloud):
        upstream.default = _in_kind
    router = await start_router(
        clouds=[{"id": "cloud-1", "url": cloud.url}], retry={"floor_per_10s": 10_000}, policy=policy, **settings
    )
    await router.report(edge)
    await eventually(lambda: any(b.models for b in router.router.directory.snapshot().backends if b.zone == "cloud"))
    yield router
    await asyncio.sleep(0.05)


async def kept(router: RunningRouter, cloud: Upstream, sent: list[Canary], **expected: Any) -> None:
    """Send, and prove that no connection to the cloud was used, and that classes and statuses are the expected ones."""
    seen = await send_all(router, sent)
    assert {privacy_class for _, privacy_class, _ in seen} <= expected["classes"]
    assert {status for status, _, _ in seen} <= expected["statuses"]
    assert {tier for _, _, tier in seen} <= {"edge", None}
    # A poll whose connection stands but whose request has not come yet is told from others by waiting for it.
    await eventually(lambda: cloud.inference_connections == [])
    assert cloud.exchanges == []


@asynccontextmanager
async def full_audit_log(router: RunningRouter) -> AsyncIterator[None]:
    """Nothing can be recorded for as long as the block runs, and the router has noticed."""
    refused = []

    def full(self: AuditStorage, records: Any) -> None:
        refused.append(records)
        raise OSError(28, "no space left")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AuditStorage, "append", full)
        async with router.ask("hello", headers={"x-isthmus-route": "edge"}) as response:
            assert response.status == 200
        await eventually(lambda: bool(refused))
        yield
