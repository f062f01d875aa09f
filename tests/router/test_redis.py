"""Two routers on one real Redis, and what a router does when Redis freezes."""

from __future__ import annotations

import asyncio
import time

import pytest

from shared.keys import hashed
from shared.state.redis import keys_of
from shared.testing.redis_pair import RedisPair, connections, until
from shared.testing.redis_server import RedisServer, binary
from shared.testing.upstream import Upstream
from tests.router.conftest import RunningRouter, StartRouter, eventually

pytestmark = pytest.mark.redis


async def test_routers_share_the_fleet(start_router: StartRouter, edge: Upstream, redis_server: RedisServer) -> None:
    state = {"kind": "redis", "url": redis_server.url, "refresh_ms": 50}
    here, there = await start_router(state=state), await start_router(state=state)
    await _reported(here, there, edge)
    async with there.ask() as response:
        assert response.status == 200 and response.headers["x-isthmus-backend"] == "edge-1"


@pytest.mark.parametrize("form", ["url", "host_port"])
async def test_a_frozen_redis_does_not_stop_requests(
    start_router: StartRouter, edge: Upstream, redis_server: RedisServer, form: str
) -> None:
    """RD-03: requests go on with the last known fleet and wait for nothing; then all is normal again."""
    address = {"url": redis_server.url} if form == "url" else {"host": "127.0.0.1", "port": redis_server.port}
    state = {"kind": "redis", "refresh_ms": 50, **address}
    reporter = await start_router(state=state)
    router = await start_router(state=state, policy={"stale_after_ms": 2_000})
    await _reported(reporter, router, edge)
    redis_server.freeze()
    frozen_s = time.monotonic()
    served = 0
    while time.monotonic() - frozen_s < 4.0:
        async with router.ask() as response:
            assert response.status == 200, "the last known fleet must be used"
        served += 1
        await asyncio.sleep(0.02)
    assert served > 20
    async with router.session.get(f"{router.url}/metrics") as response:
        assert "isthmus_router_state_store_up 0.0" in await response.text()
    redis_server.thaw()
    await eventually(lambda: router.router.directory.store_up)
    async with router.ask() as response:
        assert response.status == 200, "the outage is not held against the agents"
    assert await reporter.report(edge) == 204


@pytest.mark.parametrize("how", ["demoted", "frozen"])
async def test_routers_follow_a_failover(start_router: StartRouter, edge: Upstream, how: str) -> None:
    """RD-03 kind: one router hears of the agent, the other only reads; both hold connections to the old primary. The
    limits of a key count on where they stood."""
    if binary() is None:
        pytest.skip("redis-server is not installed")
    key, headers = "isk-limited", {"Authorization": "Bearer isk-limited"}
    keys = [{"name": "app", "sha256": hashed(key), "scopes": ["inference", "fleet:report"], "requests_per_minute": 20}]
    async with RedisPair() as pair:
        state = {"kind": "redis", "url": pair.url, "refresh_ms": 50}
        reporter = await start_router(state=state, keys=keys)
        reader = await start_router(state=state, keys=keys)
        reporter.session.headers.update(headers)
        await _reported(reporter, reader, edge)
        assert await _served(reporter, 4) + await _served(reader, 4) == 8
        await pair.replicated()
        if how == "frozen":
            pair.old.freeze()
        pair.promote()
        if how == "demoted":
            pair.demote()
        there = pair.new
        before = reader.router.directory.snapshot().backends[0].received_ms
        await _newer(reporter, reader, edge, before)
        assert b"instance-of-edge-1" in there.command("HGET", keys_of("fleet")[0], "edge-1")
        await eventually(lambda: reporter.router.directory.store_up and reader.router.directory.store_up)
        assert await _served(reporter, 10) + await _served(reader, 10) == 12, "eight were taken before"
        pair.old.thaw()
        await until(lambda: connections(pair.old) == 0)


async def test_the_last_known_fleet_has_an_age_limit(
    start_router: StartRouter, edge: Upstream, redis_server: RedisServer
) -> None:
    state = {"kind": "redis", "url": redis_server.url, "refresh_ms": 50, "last_known_s": 0.5}
    reporter = await start_router(state=state)
    router = await start_router(state=state, policy={"stale_after_ms": 300})
    await _reported(reporter, router, edge)
    redis_server.stop()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        async with router.ask() as response:
            if response.status == 503:
                return
        await asyncio.sleep(0.02)
    raise AssertionError("a fleet nobody has heard of for long is still used")


async def _reported(reporter: RunningRouter, reader: RunningRouter, edge: Upstream) -> None:
    """Report to one router until the other knows, as an agent does once a second."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        assert await reporter.report(edge) == 204
        await asyncio.sleep(0.1)
        if reader.router.directory.snapshot().backends:
            return
    raise AssertionError("the report did not reach the other router")


async def _newer(reporter: RunningRouter, reader: RunningRouter, edge: Upstream, before_ms: int | None) -> None:
    """Report to one router until the other has a later report than that of `before_ms`."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        assert await reporter.report(edge) == 204
        await asyncio.sleep(0.1)
        [backend] = reader.router.directory.snapshot().backends
        if (backend.received_ms or 0) > (before_ms or 0):
            return
    raise AssertionError("the other router does not hear of the agent any more")


async def _served(router: RunningRouter, count: int) -> int:
    """How many of so many requests are not refused."""
    served = 0
    for _ in range(count):
        async with router.ask() as response:
            assert response.status in (200, 429)
            served += response.status == 200
    return served
