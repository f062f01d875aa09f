"""Clients that leave, and more clients than there is room for."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cloud.cluster.conftest import Answer, Cluster, chat, endless, eventually, leave

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_client_that_leaves_frees_its_sequence(quiet: Cluster, stream: bool) -> None:
    connection = quiet.connect()
    body = json.dumps(endless(stream=stream)).encode()
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    eventually(lambda: quiet.capacity()["running"] == 1)
    leave(connection)
    left_s = time.monotonic()
    eventually(lambda: quiet.capacity()["running"] == 0)
    # Its 400 tokens would take far longer than an abort; the bound is wide for a busy machine.
    assert time.monotonic() - left_s < 5


def test_a_hundred_requests_cancelled_as_they_start_leave_nothing_busy(quiet: Cluster) -> None:
    """RY-01: cancelled 0 to 50 ms after sending, streamed and not; then as many run as the replica takes."""
    chance = random.Random(1)

    def cancel(number: int) -> None:
        connection = quiet.connect()
        body = json.dumps(endless(stream=number % 2 == 0)).encode()
        if number % 10 == 0:  # in the middle of the body
            connection.putrequest("POST", "/v1/chat/completions")
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders()
            connection.send(body[:20])
        else:
            connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        time.sleep(chance.uniform(0, 0.05))
        leave(connection)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(cancel, range(100)))
    eventually(lambda: quiet.capacity()["running"] == 0)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: quiet.ask("POST", "/v1/chat/completions", chat(max_tokens=8)), range(8)))
    assert [answer.status for answer in answers] == [200] * 8
    eventually(lambda: quiet.capacity()["running"] == 0)


def test_a_replica_that_is_full_is_still_told_from_one_that_is_gone(quiet: Cluster) -> None:
    """All eight slots are taken: the figures are those of now, and the model takes requests, if only to queue them."""

    def stream(connection: http.client.HTTPConnection) -> bytes:
        body = json.dumps(endless(stream=True)).encode()
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        return connection.getresponse().read(10)

    with contextlib.ExitStack() as leaving:
        connections = [quiet.connect() for _ in range(8)]
        for connection in connections:
            leaving.callback(leave, connection)
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(stream, connections))
        seen = [quiet.capacity() for _ in range(3)]
        assert [(each["state"], each["running"], each["replicas_ready"]) for each in seen] == [("ready", 8, 1)] * 3
        assert _has_metrics(quiet)
    eventually(lambda: quiet.capacity()["running"] == 0)


def _has_metrics(cluster: Cluster) -> bool:
    return b"vllm:num_requests_running" in cluster.ask("GET", "/ops/metrics").body


def test_beyond_replica_and_queue_clients_are_told_when_to_come_back(quiet: Cluster) -> None:
    """Eight run and eight wait; the rest of a burst of forty is refused in the OpenAI shape, and nothing fails."""

    def ask(_: int) -> Answer:
        return quiet.ask("POST", "/v1/chat/completions", chat("Tell a story.", max_tokens=48, ignore_eos=True))

    with ThreadPoolExecutor(40) as pool:
        answers = list(pool.map(ask, range(40)))
    refused = [answer for answer in answers if answer.status != 200]
    assert refused
    assert len(answers) - len(refused) >= 8
    for answer in refused:
        assert (answer.status, answer.error["code"]) == (429, "queue_full")
        assert answer.headers["retry-after"] == "2"
    eventually(lambda: quiet.capacity()["running"] == 0)
