"""The cloud tier of the shared stack for the tests of this folder: vLLM under Ray Serve with the default model."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from openai import OpenAI

from cloud.processes import marked
from edge.packages.catalogue import DEFAULT_MODEL
from shared.testing.program import Program
from shared.testing.stack import Stack

START_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cloud tier of a running stack."""

    stack: Stack

    @property
    def program(self) -> Program:
        """The `isthmus up` that it runs under."""
        return self.stack.program

    @property
    def url(self) -> str:
        """Base address."""
        return self.stack.urls["cloud"]

    @property
    def client(self) -> OpenAI:
        """The official client, without retries of its own."""
        return OpenAI(base_url=f"{self.url}/v1", api_key="unused", max_retries=0, timeout=90)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | bytes | None = None) -> Answer:
        """One request on a connection of its own."""
        with contextlib.closing(self.connect()) as connection:
            raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            connection.request(method, path, raw, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())

    def connect(self) -> http.client.HTTPConnection:
        """A connection that the test may leave."""
        return http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=90)

    def capacity(self, model: str = DEFAULT_MODEL) -> dict[str, Any]:
        """What `/ops/capacity` says of `model`."""
        models = self.ask("GET", "/ops/capacity").json["models"]
        return next(each for each in models if each["model_id"] == model)

    def listening(self) -> set[str]:
        """Addresses on which processes of the cluster listen."""
        ids = {process.pid for process in self.processes()}
        return {
            connection.laddr.ip
            for connection in psutil.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN and connection.pid in ids
        }

    def processes(self) -> list[psutil.Process]:
        """Every process of the cluster below the supervisor."""
        run = json.loads((self.stack.home / "run" / "cloud" / "run.json").read_text())
        return marked(run["run_id"], Path(run["temp_dir"]))


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The OpenAI error in it."""
        error = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return dict(error)


def chat(text: str = "Which city is the capital of France?", **fields: Any) -> dict[str, Any]:
    """A chat body for the default model."""
    return {"model": DEFAULT_MODEL, "temperature": 0, "messages": [{"role": "user", "content": text}], **fields}


def endless(**fields: Any) -> dict[str, Any]:
    """A chat body whose answer takes as long as the context lasts."""
    return chat("Tell a story about the sea.", ignore_eos=True, **{"max_tokens": 400, **fields})


def eventually(condition: Callable[[], Any], limit_s: float = 60.0, pause_s: float = 0.1) -> Any:
    """The first true value of `condition`; the test fails when none came in time."""
    deadline_s = time.monotonic() + limit_s
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException, KeyError, ValueError):
            if value := condition():
                return value
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(pause_s)


@pytest.fixture(scope="session")
def cluster(stack: Stack) -> Cluster:
    """The cluster, with the default model ready and a second one that may scale to zero."""
    if "cloud" not in stack.tiers:
        pytest.skip("Ray and vLLM are not installed")
    return Cluster(stack)


@pytest.fixture
def quiet(cluster: Cluster) -> Cluster:
    """The cluster when nothing runs on it."""
    eventually(lambda: cluster.capacity()["running"] == 0)
    return cluster


def leave(connection: http.client.HTTPConnection) -> None:
    """Reset the connection, as a client that was killed does."""
    if connection.sock is not None:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    connection.close()
