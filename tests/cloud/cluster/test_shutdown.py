"""The end of the stack: the cloud's running streams are finished, new work is refused, no process stays."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket

import psutil
import pytest

from tests.cloud.cluster.conftest import Cluster, chat, endless, eventually

pytestmark = [pytest.mark.cloud, pytest.mark.ends(1), pytest.mark.timeout(900)]


def test_sigterm_finishes_streams_refuses_new_work_and_leaves_nothing(quiet: Cluster) -> None:
    """UP-01 for the cloud tier."""
    processes = quiet.processes()
    with contextlib.closing(quiet.connect()) as connection:
        _drain(quiet, connection)
    assert quiet.program.process.wait(120) == 0, quiet.program.log_end()
    assert [process for process in processes if process.is_running() and process.status() != psutil.STATUS_ZOMBIE] == []
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", int(quiet.url.rpartition(":")[2])))


def _drain(quiet: Cluster, connection: http.client.HTTPConnection) -> None:
    body = json.dumps(endless(stream=True, max_tokens=120)).encode()
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    assert response.read(10)
    quiet.program.process.terminate()
    eventually(lambda: quiet.capacity()["state"] == "draining")
    refused = quiet.ask("POST", "/v1/chat/completions", chat(max_tokens=4))
    assert (refused.status, refused.error["code"]) == (503, "draining")
    assert "retry-after" in {name.lower() for name in refused.headers}
    rest = response.read()
    assert rest.endswith(b"data: [DONE]\n\n")
    assert b'"finish_reason":"length"' in rest
