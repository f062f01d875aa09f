"""A Redis that is slow, frozen or gone: calls end in time, answers are never mixed up, and it recovers."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from shared.clock import SystemClock
from shared.errors import StateRefused, StateUnavailable
from shared.fleet import BackendState, Heartbeat
from shared.state.address import RedisAddress
from shared.state.link import RedisLink
from shared.state.redis import RedisStateStore, keys_of
from shared.testing.redis_server import DelayProxy, RedisServer

pytestmark = pytest.mark.redis


def beat(backend_id: str, sequence: int = 1) -> Heartbeat:
    return Heartbeat(
        backend_id=backend_id,
        instance=f"instance-of-{backend_id}",
        sequence=sequence,
        url=f"http://{backend_id}:8081",
        state=BackendState.READY,
    )


async def test_cancelled_commands_never_mix_answers(redis_server: RedisServer) -> None:
    """RD-01: 150 callers leave at random moments; every later answer belongs to its own command."""
    draw = random.Random(7)
    async with DelayProxy(redis_server.port, delay_s=0.02) as proxy:
        store = RedisStateStore(
            RedisLink(RedisAddress(port=proxy.port), SystemClock(), limit_s=5), SystemClock(), ttl_s=60
        )
        try:
            for round_ in range(150):
                leaver = asyncio.create_task(store.reports() if round_ % 2 else store.publish(beat("a", round_ + 1)))
                await asyncio.sleep(draw.random() * 0.03)
                leaver.cancel()
                await asyncio.gather(leaver, return_exceptions=True)
                if round_ % 2:
                    assert await store.publish(beat("b", round_ + 1)) is True
                else:
                    assert all(r.heartbeat.backend_id in {"a", "b"} for r in await store.reports())
            assert proxy.accepted <= 8, "cancelled commands must not cost a connection each"
        finally:
            for name in ("a", "b"):
                await store.forget(name)
            await store.close()


@pytest.mark.parametrize("form", ["url", "host_port"])
async def test_a_frozen_redis_costs_at_most_the_limit(form: str) -> None:
    """RD-03: each call ends within its limit, the breaker makes later ones immediate, and a thaw heals."""
    server = RedisServer()
    server.start()
    address = RedisAddress(url=server.url) if form == "url" else RedisAddress(port=server.port)
    store = RedisStateStore(RedisLink(address, SystemClock()), SystemClock(), ttl_s=60)
    try:
        assert await store.publish(beat("a"))
        server.freeze()
        durations = []
        for _ in range(20):
            started = time.monotonic()
            with pytest.raises(StateUnavailable):
                await store.reports()
            durations.append(time.monotonic() - started)
        assert sum(d > 0.05 for d in durations) < 10, "an open breaker answers at once"
        server.thaw()
        await _eventually_answers(store)
        assert [r.heartbeat.backend_id for r in await store.reports()] == ["a"]
    finally:
        server.thaw()
        await store.close()
        server.stop()


async def test_a_redis_that_is_gone_is_unavailable_not_an_error_of_the_library() -> None:
    server = RedisServer()
    store = RedisStateStore(RedisLink(RedisAddress(port=server.port), SystemClock()), SystemClock(), ttl_s=60)
    try:
        for _ in range(5):
            with pytest.raises(StateUnavailable):
                await store.publish(beat("a"))
        server.start()
        await _eventually_answers(store)
    finally:
        await store.close()
        server.stop()


async def test_a_late_reader_takes_an_old_beat_for_old(redis_server: RedisServer) -> None:
    writer = RedisStateStore(RedisLink(RedisAddress(url=redis_server.url), SystemClock()), SystemClock(), ttl_s=60)
    await writer.publish(beat("late"))
    await asyncio.sleep(0.3)
    reader = RedisStateStore(RedisLink(RedisAddress(url=redis_server.url), SystemClock()), SystemClock(), ttl_s=60)
    try:
        [report] = [r for r in await reader.reports() if r.heartbeat.backend_id == "late"]
        assert SystemClock().now_ms() - report.received_ms >= 250
    finally:
        await writer.forget("late")
        await writer.close()
        await reader.close()


_FULL = ("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")
_REPLICA = ("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE")


@pytest.mark.parametrize(("refuse", "take"), [_FULL, _REPLICA], ids=["full", "replica"])
async def test_a_redis_that_refuses_writes_is_read_as_ever(refuse: tuple[str, ...], take: tuple[str, ...]) -> None:
    """RD-03 kind: it answers, so no breaker keeps readers from it, and what they know is not read anew."""
    with RedisServer() as server:
        link = RedisLink(RedisAddress(url=server.url), SystemClock())
        store = RedisStateStore(link, SystemClock(), ttl_s=60)
        assert await store.publish(beat("a"))
        [known] = await store.reports()
        assert server.command(*refuse).startswith(b"+OK")
        for sequence in range(2, 8):
            with pytest.raises(StateRefused):
                await store.publish(beat("a", sequence))
            [report] = await store.reports()
            assert report is known
        assert link.failures == 0
        assert server.command(*take).startswith(b"+OK")
        assert await store.publish(beat("a", 9))
        assert [r.sequence for r in await store.reports()] == [9]
        await store.close()


@pytest.mark.parametrize(
    "head", ["no JSON", "7", "[]", '{"a": 1}', '["i"]', '["i", "x", "y"]', "null", '[["i"], {}, null]']
)
async def test_what_no_router_wrote_costs_its_own_row_alone(redis_server: RedisServer, head: str) -> None:
    """RD-01 kind: whoever else can write there takes no other device away."""
    store = RedisStateStore(
        RedisLink(RedisAddress(url=redis_server.url), SystemClock()), SystemClock(), ttl_s=60, fleet="rows"
    )
    heads, *_, changed, _, version, _ = keys_of("rows")
    try:
        await store.publish(beat("a"))
        number = redis_server.command("INCR", version)[1:].strip().decode()
        redis_server.command("HSET", heads, "foreign", head)
        redis_server.command("ZADD", changed, number, "foreign")
        assert [r.backend_id for r in await store.reports()] == ["a"]
        await store.publish(beat("b"))
        assert [r.backend_id for r in await store.reports()] == ["a", "b"]
    finally:
        redis_server.command("FLUSHALL")
        await store.close()


async def _eventually_answers(store: RedisStateStore) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            await store.reports()
            return
        except StateUnavailable:
            await asyncio.sleep(0.1)
    raise AssertionError("the store did not recover")
