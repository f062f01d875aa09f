"""What every limiter does: in memory with a clock that tests turn, and in a real Redis on the server's own."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from router.limits.fallback import SharedLimiter
from router.limits.memory import MemoryLimiter
from router.limits.port import Bound, Demand, Limiter
from router.limits.redis import RedisLimiter
from shared.clock import SystemClock
from shared.errors import StateUnavailable
from shared.keys import KeyLimits
from shared.state.address import RedisAddress
from shared.state.link import RedisLink
from shared.testing.redis_server import DelayProxy, RedisServer


def demand(limits: KeyLimits, *, tokens: int = 0, holder: str = "app") -> Demand:
    return Demand(holder, limits, tokens, secrets.token_hex(6))


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
async def limiter(request: pytest.FixtureRequest) -> AsyncIterator[Limiter]:
    if request.param == "memory":
        yield MemoryLimiter(SystemClock())
        return
    server: RedisServer = request.getfixturevalue("redis_server")
    link = RedisLink(RedisAddress(url=server.url), SystemClock())
    yield RedisLimiter(link, fleet=secrets.token_hex(4))
    await link.close()


async def test_exactly_as_many_requests_as_a_minute_allows(limiter: Limiter) -> None:
    limits = KeyLimits(requests_per_minute=5)
    standings = await asyncio.gather(*(limiter.take(demand(limits)) for _ in range(20)))
    assert sum(s.refused is None for s in standings) == 5
    refused = [s for s in standings if s.refused is not None]
    assert {s.refused for s in refused} == {Bound.REQUESTS}
    assert all(59_000 < s.retry_ms <= 61_000 for s in refused), "the first place comes free in a minute"
    assert all(s.used_requests == 5 and s.reset_requests_ms == s.retry_ms for s in refused)


async def test_what_was_not_used_of_the_tokens_is_given_back(limiter: Limiter) -> None:
    limits = KeyLimits(tokens_per_minute=100)
    first = demand(limits, tokens=90)
    standing = await limiter.take(first)
    assert (standing.refused, standing.used_tokens) == (None, 90)
    assert (await limiter.take(demand(limits, tokens=20))).refused is Bound.TOKENS
    await limiter.settle(first, standing, 30)
    standing = await limiter.take(demand(limits, tokens=20))
    assert (standing.refused, standing.used_tokens) == (None, 50)


async def test_an_answer_that_was_longer_than_thought_counts_in_full(limiter: Limiter) -> None:
    limits = KeyLimits(tokens_per_minute=100)
    first = demand(limits, tokens=10)
    standing = await limiter.take(first)
    await limiter.settle(first, standing, 250)
    refused = await limiter.take(demand(limits, tokens=1))
    assert (refused.refused, refused.used_tokens) == (Bound.TOKENS, 250)


async def test_rl_01_a_place_is_free_again_when_its_request_ended(limiter: Limiter) -> None:
    limits = KeyLimits(concurrent=2)
    running = [demand(limits) for _ in range(2)]
    granted = [await limiter.take(each) for each in running]
    assert (await limiter.take(demand(limits))).refused is Bound.CONCURRENT
    for each, standing in zip(running, granted, strict=True):
        await limiter.settle(each, standing, 0)
    assert [(await limiter.take(demand(limits))).refused for _ in range(2)] == [None, None]


async def test_a_refused_request_uses_nothing(limiter: Limiter) -> None:
    limits = KeyLimits(requests_per_minute=10, tokens_per_minute=100, concurrent=1)
    assert (await limiter.take(demand(limits, tokens=60))).refused is None
    for _ in range(5):
        standing = await limiter.take(demand(limits, tokens=10))
        assert (standing.refused, standing.used_requests, standing.used_tokens) == (Bound.CONCURRENT, 1, 60)
    assert (await limiter.take(demand(limits, tokens=60))).refused is Bound.TOKENS


async def test_holders_do_not_see_each_other(limiter: Limiter) -> None:
    limits = KeyLimits(requests_per_minute=1, concurrent=1)
    for holder in ("a", "b", "c"):
        assert (await limiter.take(demand(limits, holder=holder))).refused is None


@pytest.fixture
async def opened(redis_server: RedisServer) -> AsyncIterator[Callable[[str], RedisLimiter]]:
    links: list[RedisLink] = []

    def of(fleet: str) -> RedisLimiter:
        links.append(RedisLink(RedisAddress(url=redis_server.url), SystemClock()))
        return RedisLimiter(links[-1], fleet=fleet, lease_ms=300)

    yield of
    for link in links:
        await link.close()


@pytest.mark.redis
async def test_routers_together_grant_no_more_than_one_would(opened: Callable[[str], RedisLimiter]) -> None:
    routers = [opened("exact") for _ in range(4)]
    limits = KeyLimits(requests_per_minute=37, tokens_per_minute=10_000)
    asked = [routers[n % 4].take(demand(limits, tokens=7)) for n in range(200)]
    granted = [s for s in await asyncio.gather(*asked) if s.refused is None]
    assert len(granted) == 37
    assert sorted(s.used_requests for s in granted) == list(range(1, 38))


@pytest.mark.redis
async def test_rl_01_leases_of_a_router_that_died_end_by_themselves(opened: Callable[[str], RedisLimiter]) -> None:
    dead, alive = opened("dead"), opened("dead")
    limits = KeyLimits(concurrent=2)
    for _ in range(2):
        assert (await dead.take(demand(limits))).refused is None
    assert (await alive.take(demand(limits))).refused is Bound.CONCURRENT
    await _until(lambda: _granted(alive, limits))


@pytest.mark.redis
async def test_rl_01_who_leaves_while_limits_are_asked_for_holds_no_place(redis_server: RedisServer) -> None:
    """RL-01 kind: Redis is slow, and the client gone before it has answered."""
    limits = KeyLimits(concurrent=2, tokens_per_minute=100)
    async with DelayProxy(redis_server.port, delay_s=0.05) as proxy:
        link = RedisLink(RedisAddress(port=proxy.port), SystemClock(), limit_s=5)
        limiter = SharedLimiter(RedisLimiter(link, fleet=secrets.token_hex(4)), SystemClock())
        for _ in range(4):
            leaver = asyncio.create_task(limiter.take(demand(limits, tokens=30)))
            await asyncio.sleep(0.02)
            leaver.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaver
        async with asyncio.timeout(5):  # half of what a lease lasts
            while (await limiter.take(demand(limits, tokens=100))).refused is not None:
                await asyncio.sleep(0.05)
        await link.close()


@pytest.mark.redis
async def test_a_server_whose_clock_is_behind_counts_on(
    opened: Callable[[str], RedisLimiter], redis_server: RedisServer
) -> None:
    """RL-01 kind: a replica that took over may be seconds behind, and has seconds in its memory that are to come."""
    limiter = opened("behind")
    limits = KeyLimits(requests_per_minute=3)
    ahead = int(SystemClock().unix_s()) + 30
    key = "isthmus:{behind:app}:v2:requests"
    redis_server.command("HSET", key, "used", "2", "from", str(ahead), str(ahead), "2")
    assert (await limiter.take(demand(limits))).refused is None
    refused = await limiter.take(demand(limits))
    assert refused.refused is Bound.REQUESTS and refused.retry_ms > 0


@pytest.mark.redis
async def test_what_runs_keeps_its_place_for_as_long_as_it_runs(opened: Callable[[str], RedisLimiter]) -> None:
    """A request longer than a lease; also after a Redis that forgot everything is back."""
    one, other = opened("long"), opened("long")
    limits = KeyLimits(concurrent=1)
    running = demand(limits)
    standing = await one.take(running)
    for _ in range(4):
        await asyncio.sleep(0.15)
        await one.renew({"app": [running.lease]})
        assert (await other.take(demand(limits))).refused is Bound.CONCURRENT
    await one.settle(running, standing, 0)
    assert (await other.take(demand(limits))).refused is None


@pytest.mark.redis
async def test_without_redis_each_router_grants_an_equal_share() -> None:
    """The decided rule: limits fall to an equal local share, and what runs already counts in it."""
    server = RedisServer()
    server.start()
    links = [RedisLink(RedisAddress(url=server.url), SystemClock()) for _ in range(3)]
    routers = [SharedLimiter(RedisLimiter(link, fleet="share"), SystemClock()) for link in links]
    limits = KeyLimits(requests_per_minute=9, concurrent=6)
    try:
        for router in routers * 2:
            await router.renew()
        before = demand(limits)
        standing = await routers[0].take(before)
        assert standing.refused is None
        server.stop()
        for router, free in zip(routers, (1, 2, 2), strict=True):
            standings = [await router.take(demand(limits)) for _ in range(5)]
            assert [s.refused for s in standings] == [None] * free + [Bound.CONCURRENT] * (5 - free)
        await routers[0].settle(before, standing, 0)
        assert (await routers[0].take(demand(limits))).refused is None
    finally:
        for link in links:
            await link.close()
        server.stop()


async def _granted(limiter: RedisLimiter, limits: KeyLimits) -> bool:
    return (await limiter.take(demand(limits))).refused is None


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                if await condition():
                    return
            except StateUnavailable:
                pass
            await asyncio.sleep(0.05)
