"""Calls that ask replicas about themselves: answered by a replica that is full, and no load of the model they ask."""

from __future__ import annotations

import ast
import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cloud
from cloud.control_calls import (
    CONTROL_METHODS,
    answer_beside_requests,
    answers_in_time,
    count_no_calls_as_load,
)

replica: Any = pytest.importorskip("ray.serve._private.replica")
router: Any = pytest.importorskip("ray.serve._private.router")


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ray's own names again after each test."""
    monkeypatch.setattr(replica.Replica, "_start_request", replica.Replica._start_request)
    name = "RAY_SERVE_COLLECT_AUTOSCALING_METRICS_ON_HANDLE"
    monkeypatch.setattr(router, name, getattr(router, name))
    yield


class Metrics:
    """Counts as the replica's own metrics do."""

    ongoing = 0

    def inc_num_ongoing_requests(self, _: Any) -> None:
        self.ongoing += 1

    def dec_num_ongoing_requests(self, _: Any) -> None:
        self.ongoing -= 1


class FullReplica:
    """A replica with one slot, as far as the start of a request needs it."""

    def __init__(self) -> None:
        self._semaphore = asyncio.Semaphore(1)
        self._metrics_manager = Metrics()

    @contextlib.asynccontextmanager
    async def call(self, method: str) -> AsyncIterator[None]:
        meta = SimpleNamespace(call_method=method, _reserved_slot_token=None)
        async with replica.Replica._start_request(self, meta):
            yield


@pytest.mark.parametrize("method", sorted(CONTROL_METHODS))
async def test_a_full_replica_answers_what_is_asked_about_itself(method: str) -> None:
    answer_beside_requests()
    answer_beside_requests()  # by each deployment that shares a process: once is enough
    full = FullReplica()
    async with full.call("chat"):
        assert full._semaphore.locked()
        async with asyncio.timeout(5), full.call(method):
            assert full._metrics_manager.ongoing == 1


async def test_requests_still_wait_for_a_slot() -> None:
    answer_beside_requests()
    full = FullReplica()
    for method in ("chat", "completions", "embeddings", "stream_to", "__call__"):
        async with full.call("chat"):
            second = full.call(method)
            waiting = asyncio.ensure_future(second.__aenter__())
            for _ in range(5):
                await asyncio.sleep(0)
            assert not waiting.done()
        await waiting
        await second.__aexit__(None, None, None)


def test_what_routers_poll_is_no_load_of_the_model() -> None:
    """SC-01: a model that is watched every second falls asleep as one that is not."""
    manager = SimpleNamespace(inc_num_running_requests_for_replica=lambda _: counted.append(1))
    asking = SimpleNamespace(_metrics_manager=manager, _process_finished_request=lambda *_: None)
    result = SimpleNamespace(add_done_callback=lambda _: None)
    one = SimpleNamespace(replica_id="r", actor_id="a")
    pending = SimpleNamespace(metadata=SimpleNamespace(internal_request_id="i"))
    counted: list[int] = []
    router.AsyncioRouter._register_completion_callback(asking, result, one, pending)
    assert counted == [1]
    count_no_calls_as_load()
    router.AsyncioRouter._register_completion_callback(asking, result, one, pending)
    assert counted == [1]


def test_every_control_method_is_one_of_ours() -> None:
    """A method that was renamed would take slots again without anybody's notice."""
    files = (Path(cloud.__file__).with_name(name) for name in ("capacity.py", "model_server.py", "rayllm.py"))
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text())))
    assert {node.name for node in nodes if isinstance(node, ast.AsyncFunctionDef)} >= CONTROL_METHODS


class Call:
    """One replica's answer, as Serve's handles give it."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def get_async(self) -> Any:
        if self._answer is None:
            await asyncio.Event().wait()
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


async def test_a_replica_that_hangs_or_fails_silences_no_other() -> None:
    """A model with one replica that is stuck is ready with the others."""

    async def calls() -> list[Call]:
        return [Call("a"), Call(None), Call(ValueError()), Call("b")]

    handle = SimpleNamespace(broadcast=lambda method: SimpleNamespace(_fetch_replica_results_async=calls))
    assert await answers_in_time(handle, "engine_stats", 0.05) == ["a", "b"]


def test_the_answer_of_a_broadcast_is_collected_as_expected() -> None:
    """What `answers_in_time` leans on."""
    response = pytest.importorskip("ray.serve.handle").DeploymentBroadcastResponse
    assert asyncio.iscoroutinefunction(response._fetch_replica_results_async)
    result = pytest.importorskip("ray.serve._private.replica_result").ReplicaResult
    assert callable(result.get_async)
