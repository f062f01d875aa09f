"""One real Redis for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.testing.redis_server import RedisServer, binary


@pytest.fixture(scope="package")
def redis_server() -> Iterator[RedisServer]:
    if binary() is None:
        pytest.skip("redis-server is not installed")
    server = RedisServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()
