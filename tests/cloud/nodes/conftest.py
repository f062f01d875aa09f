"""Clusters of several nodes on this machine, and clients that follow streams through what happens to them."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from cloud.render import serve_config
from cloud.settings import CloudSettings
from edge.packages.catalogue import DEFAULT_MODEL
from shared.testing.program import child_environment, command
from shared.testing.ray_nodes import RayCluster
from shared.testing.redis_server import RedisServer
from shared.testing.stack import can_run_cloud, use_cache

READY_LIMIT_S = 600.0
MODEL = {
    "model_id": DEFAULT_MODEL,
    "context_tokens": 2048,
    "max_num_seqs": 8,
    "threads": 1,
    "autoscaling": {"max_ongoing_requests": 16},
}


@pytest.fixture(scope="package")
def home(cache_of_built_models: None) -> Iterator[Path]:
    """A home with the checkpoint of the default model."""
    if not can_run_cloud():
        pytest.skip("Ray and vLLM are not installed")
    with tempfile.TemporaryDirectory(prefix="isthmus-") as folder:
        use_cache(Path(folder))
        for words in (("edge", "pull", DEFAULT_MODEL), ("cloud", "checkpoint")):
            subprocess.run([*command(), *words], env=child_environment(Path(folder)), check=True, timeout=600)
        yield Path(folder)


@pytest.fixture
def cluster_on(home: Path) -> Iterator[Callable[[RedisServer | None], RayCluster]]:
    """A function that gives a cluster without nodes, with the head's tables in Redis or not; one each test."""
    with contextlib.ExitStack() as stack:

        def make(redis: RedisServer | None = None) -> RayCluster:
            # A short path, for the sockets below it.
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True))
            return stack.enter_context(RayCluster(Path(folder), home, redis))

        yield make


def config_of(home: Path, port: int, **changes: Any) -> dict[str, Any]:
    """The rendered Serve config for the default model, `changes` in its settings; it listens on loopback alone."""
    source = str(next((home / "checkpoints").glob(f"{DEFAULT_MODEL}-*")))
    section = {"port": port, "models": [{**MODEL, "source": source, **changes.pop("model", {})}], **changes}
    config = serve_config(CloudSettings.model_validate(section), checkpoints=PurePosixPath("/models"))
    return {**config, "http_options": {**config["http_options"], "host": "127.0.0.1"}}


@dataclass
class Client:
    """A client of the tier behind one proxy."""

    port: int
    streams: list[Stream] = field(default_factory=list)

    def ask(self, body: dict[str, Any], limit_s: float = 60.0) -> tuple[int, dict[str, Any]]:
        """Status and body of one whole answer."""
        connection = self._sent(body, limit_s)
        with contextlib.closing(connection):
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def stream(self, max_tokens: int) -> Stream:
        """A stream that is followed from here on, after its first event."""
        connection = self._sent(chat(max_tokens=max_tokens, stream=True, ignore_eos=True), READY_LIMIT_S)
        stream = Stream(connection, connection.getresponse())
        self.streams.append(stream)
        return stream

    def state(self) -> str:
        """State of the model, as the capacity route tells it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", "/ops/capacity")
            return str(json.loads(connection.getresponse().read())["models"][0]["state"])

    def _sent(self, body: dict[str, Any], limit_s: float) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=limit_s)
        raw = json.dumps(body).encode()
        connection.request("POST", "/v1/chat/completions", raw, {"Content-Type": "application/json"})
        return connection


class Stream:
    """One stream, read in a thread until its end."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.text = response.read1(100)
        self.ended_s = 0.0
        self._connection = connection
        self._response = response
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with (
            contextlib.closing(self._connection),
            contextlib.closing(self._response),
            contextlib.suppress(OSError, http.client.HTTPException),
        ):
            while part := self._response.read1(65_536):
                self.text += part
        self.ended_s = time.monotonic()

    @property
    def running(self) -> bool:
        """Whether its end has not come."""
        return self._thread.is_alive()

    @property
    def whole(self) -> bool:
        """Whether it ended as the engine ended it."""
        return self.text.endswith(b"data: [DONE]\n\n") and b'"finish_reason":"length"' in self.text

    @property
    def broken(self) -> bool:
        """Whether it ended with one error event, and nothing invented behind it."""
        return self.text.count(b'data: {"error"') == 1 and b"[DONE]" not in self.text

    def wait(self, limit_s: float) -> Stream:
        """Itself, once it has ended."""
        self._thread.join(limit_s)
        assert not self.running, "the stream goes on"
        return self


def chat(**fields: Any) -> dict[str, Any]:
    """A chat body for the default model."""
    messages = [{"role": "user", "content": "Tell a story about the sea."}]
    return {"model": DEFAULT_MODEL, "temperature": 0, "max_tokens": 8, "messages": messages, **fields}
