"""Ray nodes as a cluster has them, on one machine: each a `ray start` of its own, killed as a machine is lost."""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import psutil

from shared import processes
from shared.testing.program import child_environment
from shared.testing.redis_server import RedisServer
from shared.testing.stack import free_ports

MARK = "ISTHMUS_TEST_RAY_NODE"
_PAUSE_S = 0.2
_START_LIMIT_S = 120.0
_LOG_END_CHARACTERS = 4000


class RayNode:
    """One `ray start --block` and all that it started."""

    def __init__(self, words: list[str], environment: Mapping[str, str], log: Path) -> None:
        self._mark = {MARK: secrets.token_hex(8)}
        with log.open("ab") as out:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and words
                [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", *words],
                env={**environment, **self._mark},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def processes(self) -> list[psutil.Process]:
        """Every process of the node."""
        return [*processes.descendants_of([self._process.pid]), *processes.marked(self._mark)]

    def kill(self) -> None:
        """Kill all of it at once: nothing says goodbye."""
        processes.end(self.processes)
        self._process.wait()


class RayCluster:
    """A head and workers on loopback, with token authentication; with `redis`, the head's tables live there."""

    def __init__(self, folder: Path, home: Path, redis: RedisServer | None = None) -> None:
        token = folder / "token"
        token.touch(mode=0o600)
        self._token = secrets.token_hex(32)
        token.write_text(self._token)
        self._folder = folder
        self._redis = redis
        self._name = secrets.token_hex(4)
        self._nodes: list[RayNode] = []
        self._gcs, self._dashboard = free_ports(2)
        self._environment = {
            **child_environment(home),
            "RAY_TMPDIR": str(folder),
            "TMPDIR": str(folder),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
            "RAY_metrics_report_interval_ms": "1000",
            "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._nodes:
            node.kill()

    def start_head(self, *, cpus: int) -> RayNode:
        """The head; after a kill, another one that finds its predecessor's tables in Redis."""
        # Ray takes its own note of a head, and a worker that still looks for it, for a head that runs.
        (self._folder / "ray_current_cluster").unlink(missing_ok=True)
        words = [
            "--head",
            *("--port", str(self._gcs)),
            *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(self._dashboard)),
            *("--include-dashboard", "true", "--temp-dir", str(self._folder)),
        ]
        variables = {}
        if self._redis is not None:
            variables = {
                "RAY_REDIS_ADDRESS": f"127.0.0.1:{self._redis.port}",
                "RAY_external_storage_namespace": self._name,
            }
        node = self._start("head", words, cpus, variables)
        try:
            until(lambda: self._rest("GET", "/api/version"), _START_LIMIT_S)
        except AssertionError as error:
            raise AssertionError(f"the head does not start: {self._log_end('head')}") from error
        return node

    def start_worker(self, *, cpus: int, serve_port: int) -> RayNode:
        """A worker, whose Serve proxy listens on `serve_port`: on one machine each needs its own."""
        variables = {"RAY_SERVE_WORKER_PROXY_HTTP_PORT": str(serve_port)}
        return self._start("worker", ["--address", f"127.0.0.1:{self._gcs}"], cpus, variables)

    def deploy(self, config: Mapping[str, Any]) -> None:
        """Hand a Serve config to the head, as KubeRay does."""
        self._rest("PUT", "/api/serve/applications/", config)

    def kill_process(self, pid: int) -> None:
        """Kill one process of the cluster; any other is left alone."""
        if pid in {process.pid for node in self._nodes for process in node.processes()}:
            psutil.Process(pid).kill()

    def application(self, name: str) -> dict[str, Any]:
        """What Serve says of an application."""
        found: dict[str, Any] = self._rest("GET", "/api/serve/applications/")["applications"][name]
        return found

    def _start(self, name: str, words: list[str], cpus: int, variables: Mapping[str, str]) -> RayNode:
        agent, metrics = free_ports(2)
        common = [
            *("--node-ip-address", "127.0.0.1", "--num-cpus", str(cpus), "--num-gpus", "0"),
            *("--object-store-memory", str(100 * 1024 * 1024)),
            *("--dashboard-agent-listen-port", str(agent), "--metrics-export-port", str(metrics)),
        ]
        log = self._folder / f"{name}.log"
        node = RayNode([*words, *common], {**self._environment, **variables}, log)
        self._nodes.append(node)
        return node

    def _log_end(self, name: str) -> str:
        """The last of what the nodes of that name said."""
        return (self._folder / f"{name}.log").read_text(errors="replace")[-_LOG_END_CHARACTERS:]

    def _rest(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._dashboard}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
            raw = response.read()
        return json.loads(raw) if raw else {}


def until(condition: Callable[[], Any], limit_s: float) -> Any:
    """The first true value of `condition`, which may fail to connect meanwhile.

    Raises:
        AssertionError: none came in time.
    """
    deadline_s = time.monotonic() + limit_s
    while True:
        with contextlib.suppress(OSError, urllib.error.URLError, KeyError, ValueError):
            if value := condition():
                return value
        if time.monotonic() > deadline_s:
            raise AssertionError(f"it did not happen within {limit_s:.0f} s")
        time.sleep(_PAUSE_S)
