"""Engines and processes that die: the capacity route tells the truth, and the tier comes back."""

from __future__ import annotations

import contextlib
import json

import psutil
import pytest

from edge.packages.catalogue import DEFAULT_MODEL
from tests.cloud.cluster.conftest import START_LIMIT_S, Cluster, chat, endless, eventually

pytestmark = [pytest.mark.cloud, pytest.mark.slow, pytest.mark.ends(0), pytest.mark.timeout(1800)]


def test_a_dead_engine_takes_its_replica_along_and_is_replaced(quiet: Cluster) -> None:
    """A replica that outlived its engine would fail fast and so draw traffic; here it leaves with it."""
    with contextlib.closing(quiet.connect()) as connection:
        body = json.dumps(endless(stream=True)).encode()
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.read(10)
        engine = _engine(quiet)
        engine.kill()
        rest = response.read()
    assert b"[DONE]" not in rest  # an end that the engine did not reach is not invented
    assert rest.count(b'data: {"error"') == 1
    eventually(lambda: quiet.capacity()["state"] == "starting", pause_s=0.02)
    eventually(lambda: quiet.capacity()["state"] == "ready", START_LIMIT_S)
    assert "Paris" in quiet.ask("POST", "/v1/chat/completions", chat(max_tokens=16)).body.decode()
    assert _engine(quiet).pid != engine.pid


def _engine(cluster: Cluster) -> psutil.Process:
    """The engine below the replica of the default model."""
    return next(
        child
        for process in cluster.processes()
        if _title(process).startswith(f"ray::ServeReplica:isthmus:model:{DEFAULT_MODEL}")
        for child in process.children()
        if _title(child).startswith("VLLM::EngineCore")
    )


def _title(process: psutil.Process) -> str:
    """What the process calls itself; one that has ended meanwhile calls itself nothing."""
    try:
        return next(iter(process.cmdline()), "")
    except psutil.Error:
        return ""
