"""Both state stores behind one fixture, so that one suite holds them to the same behaviour."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.clock import SystemClock
from shared.state.address import RedisAddress
from shared.state.link import RedisLink
from shared.state.memory import MemoryStateStore
from shared.state.port import StateStore
from shared.state.redis import RedisStateStore
from shared.testing.redis_server import RedisServer
from tests.conftest import one_redis

TTL_S = 1.0


redis_server = pytest.fixture(one_redis, scope="session")


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[StateStore]:
    if request.param == "memory":
        opened: StateStore = MemoryStateStore(SystemClock(), ttl_s=TTL_S)
    else:
        server: RedisServer = request.getfixturevalue("redis_server")
        opened = RedisStateStore(
            RedisLink(RedisAddress(url=server.url), SystemClock(), limit_s=5), SystemClock(), ttl_s=TTL_S
        )
        for report in await opened.reports():
            await opened.forget(report.heartbeat.backend_id)
    yield opened
    await opened.close()
