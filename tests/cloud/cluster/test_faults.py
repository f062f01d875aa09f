"""Engines and processes that die: the capacity route tells the truth, and the tier comes back."""

from __future__ import annotations

import json

import pytest

from tests.cloud.cluster.conftest import START_LIMIT_S, Cluster, chat, endless, eventually, kill, pids

pytestmark = [pytest.mark.cloud, pytest.mark.slow, pytest.mark.timeout(1800)]


ENGINE = "VLLM::EngineCore"


def test_a_dead_engine_takes_its_replica_along_and_is_replaced(quiet: Cluster) -> None:
    """A replica that outlived its engine would fail fast and so draw traffic; here it leaves with it."""
    connection = quiet.connect()
    connection.request(
        "POST", "/v1/chat/completions", json.dumps(endless(stream=True)).encode(), {"Content-Type": "application/json"}
    )
    response = connection.getresponse()
    assert response.read(10)
    (engine,) = pids(quiet.processes(), ENGINE)
    kill(engine)
    rest = response.read()
    assert b"[DONE]" not in rest  # an end that the engine did not reach is not invented
    assert rest.count(b'data: {"error"') == 1
    connection.close()
    eventually(lambda: quiet.capacity()["state"] == "starting", pause_s=0.02)
    eventually(lambda: quiet.capacity()["state"] == "ready", START_LIMIT_S)
    assert "Paris" in quiet.ask("POST", "/v1/chat/completions", chat(max_tokens=16)).body.decode()
    assert engine not in pids(quiet.processes(), ENGINE)
