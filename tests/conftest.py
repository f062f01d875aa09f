"""What every test stands on: a home of its own, no settings leaking in from the environment, free ports."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from shared.testing.redis_server import RedisServer, binary
from shared.testing.stack import Stack, running_stack

ASLEEP = "asleep"
"""Model of the shared stack that has no replica until somebody asks for it."""

# How fast examples come says something of the machine, nothing of the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session", autouse=True)
def cache_of_built_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What takes a minute to build is built once for all folders of tests."""
    if "ISTHMUS_TEST_CACHE" in os.environ:
        yield
        return
    os.environ["ISTHMUS_TEST_CACHE"] = str(tmp_path_factory.mktemp("built"))
    yield
    del os.environ["ISTHMUS_TEST_CACHE"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on the shared stack run side by side at the end, and those that end a part of it last of all."""

    def turn(item: pytest.Item) -> int:
        ends = item.get_closest_marker("ends")
        return 2 + int(ends.args[0]) if ends else int("stack" in getattr(item, "fixturenames", ()))

    items.sort(key=turn)


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The shared stack. Tests leave it as they found it: every tier up, no request open, no simulated sensor.

    One Ray cluster serves all of them, since its start is what takes longest: the cloud's limits are low enough to
    be reached, and a second model sleeps beside the default one.
    """
    model = {"source": "package:smollm2-135m-instruct", "context_tokens": 512, "max_num_seqs": 8, "threads": 1}
    limits = {"target_ongoing_requests": 4, "max_ongoing_requests": 8, "max_queued_requests": 8}
    models = [
        {"model_id": "smollm2-135m-instruct", **model, "autoscaling": limits},
        {"model_id": ASLEEP, **model, "autoscaling": {"min_replicas": 0, "downscale_to_zero_delay_s": 20}},
    ]
    cloud = {"models": models, "life": {"drain_s": 180}}
    with running_stack({"cloud": cloud, "up": {"stop_limit_s": 200, "ready_limits_s": {"cloud": 900}}}) as started:
        yield started


def one_redis() -> Iterator[RedisServer]:
    """A real Redis, thawed and ended afterwards. Folders whose tests leave it as it was give it a wider scope."""
    if binary() is None:
        pytest.skip("redis-server is not installed")
    with RedisServer() as server:
        yield server


redis_server = pytest.fixture(one_redis)


@pytest.fixture(autouse=True)
def isolated_environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point `$ISTHMUS_HOME` at an empty folder and drop every setting of the caller's shell."""
    for name in list(os.environ):
        if name.startswith("ISTHMUS_") and name not in _FOR_TESTS:
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("ISTHMUS_HOME", str(home))
    return home


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """Undo what a test configured: the stream that its logs went to may be closed by now."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:], root.level = handlers, level


_FOR_TESTS = frozenset(
    {
        "ISTHMUS_COMPAT_PYTHON",
        "ISTHMUS_K8S_SCHEMAS",
        "ISTHMUS_TEST_CACHE",
        "ISTHMUS_TEST_MODEL_SIGNING",
        "ISTHMUS_TEST_MODEL_WHEEL",
        "ISTHMUS_TEST_TOOLS",
    }
)
"""Variables that point tests at material kept between runs; no program of ours reads them."""


@pytest.fixture
def free_port() -> Callable[[], int]:
    """A function that finds loopback ports nobody listens on; each call gives another one."""
    given: set[int] = set()

    def find() -> int:
        while True:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = int(probe.getsockname()[1])
            if port not in given:
                given.add(port)
                return port

    return find
