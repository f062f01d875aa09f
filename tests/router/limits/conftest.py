"""One real Redis for the tests of this folder."""

from __future__ import annotations

import pytest

from tests.conftest import one_redis

redis_server = pytest.fixture(one_redis, scope="package")
