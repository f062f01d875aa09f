"""The chart's Redis runs for real from its rendered command: users, passwords and limits are what they should be."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError
from redis.retry import Retry

from shared.clock import SystemClock
from shared.fleet import BackendState, Heartbeat
from shared.state.address import RedisAddress
from shared.state.link import RedisLink
from shared.state.redis import RedisStateStore
from shared.testing.redis_server import binary
from tests.helm.manifests import Rendered

pytestmark = pytest.mark.redis

ROUTER_PASSWORD = 'a "quoted" $(echo pass)\\word # with every sign'
RAY_PASSWORD = "r" * 48
START_LIMIT_S = 10.0


class Server:
    """Address and process of the server under test."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port = port
        self.process = process

    def client(self, user: str, password: str) -> Redis:
        return Redis(port=self.port, username=user, password=password, socket_timeout=5, retry=Retry(NoBackoff(), 0))


@pytest.fixture(scope="module")
def server(of_ci: Callable[[str], Rendered], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with _running(of_ci("own-redis"), tmp_path_factory.mktemp("redis")) as found:
        yield found


@contextlib.contextmanager
def _running(rendered: Rendered, folder: Path, **client: Any) -> Iterator[Server]:
    """Run the container's own command, with the ConfigMap's file moved to a free port and a folder of the test."""
    if binary() is None:
        pytest.skip("redis-server is not installed")
    container = rendered.one("StatefulSet")["spec"]["template"]["spec"]["containers"][0]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    config = rendered.one("ConfigMap", "demo-isthmus-redis")["data"]["redis.conf"]
    for there, here in (
        ("bind * -::*", "bind 127.0.0.1"),
        ("port 6379", f"port {port}"),
        ("dir /data", f"dir {folder}"),
    ):
        assert there in config
        config = config.replace(there, here)
    (folder / "redis.conf").write_text(config.replace("/etc/redis-tls", str(folder)), "utf-8")
    process = subprocess.Popen(
        [*container["command"], *container["args"]],
        env={
            "PATH": os.environ["PATH"],
            "REDIS_CONF": str(folder / "redis.conf"),
            "ROUTER_PASSWORD": ROUTER_PASSWORD,
            "RAY_PASSWORD": RAY_PASSWORD,
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(port, process, **client)
        yield Server(port, process)
    finally:
        process.terminate()
        process.wait(10)


def _wait(port: int, process: subprocess.Popen[bytes], **options: Any) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with Redis(port=port, username="router", password=ROUTER_PASSWORD, **options) as client:
                client.ping()
                return
        except RedisError:
            time.sleep(0.02)
    raise AssertionError(f"redis-server did not start (exit code {process.poll()})")


def test_passwords_are_in_no_argument_and_no_file(server: Server) -> None:
    """The server replaced the shell, so that it gets SIGTERM itself."""
    command = Path(f"/proc/{server.process.pid}/cmdline").read_text("utf-8")
    assert command.startswith("redis-server")
    assert "pass" not in command and RAY_PASSWORD not in command


def test_nobody_enters_without_a_password(server: Server) -> None:
    for client in (
        server.client("default", ""),
        server.client("router", "wrong"),
        server.client("ray", ROUTER_PASSWORD),
    ):
        with pytest.raises(AuthenticationError), client:
            client.ping()


def test_the_routers_user_sees_its_own_keys_alone(server: Server) -> None:
    with server.client("router", ROUTER_PASSWORD) as client:
        assert client.set("isthmus:{fleet}:x", "1")
        for forbidden in (lambda: client.get("RAYabc@nodes"), client.flushall, lambda: client.config_get("*")):
            with pytest.raises(NoPermissionError):
                forbidden()


def test_rays_user_keeps_its_tables_but_cannot_administer(server: Server) -> None:
    """The commands of Ray's GCS store (hash tables, counters) and of KubeRay's clean-up job."""
    with server.client("ray", RAY_PASSWORD) as client:
        client.hset("RAYdemo@NODE", "id", "1")
        assert client.hgetall("RAYdemo@NODE") == {b"id": b"1"}
        assert [key for key, _ in client.hscan_iter("RAYdemo@NODE")] == [b"id"]
        assert client.incr("RAYdemo@counter") == 1
        assert client.info("server")["redis_mode"] == "standalone"
        assert client.delete("RAYdemo@NODE", "RAYdemo@counter") == 2
        for forbidden in (client.flushall, lambda: client.config_set("appendonly", "no"), client.acl_list):
            with pytest.raises(NoPermissionError):
                forbidden()


async def test_the_routers_state_works_as_that_user(server: Server) -> None:
    """The store's scripts need no more than the ACL allows; address and password as in the rendered settings."""
    address = RedisAddress(url=f"redis://router@127.0.0.1:{server.port}", password=ROUTER_PASSWORD)
    store = RedisStateStore(RedisLink(address, SystemClock()), SystemClock(), ttl_s=5)
    beat = Heartbeat(
        backend_id="pi", instance="instance-1", sequence=1, url="http://127.0.0.1:8081", state=BackendState.READY
    )
    try:
        assert await store.publish(beat)
        assert [report.heartbeat.backend_id for report in await store.reports()] == ["pi"]
        await store.forget("pi")
    finally:
        await store.close()


def test_full_memory_refuses_writes_instead_of_evicting(server: Server) -> None:
    with server.client("ray", RAY_PASSWORD) as client:
        memory = client.info("memory")
    assert memory["maxmemory_policy"] == "noeviction"
    assert memory["maxmemory"] == 200 * 2**20


async def test_the_routers_state_works_over_tls_alone(of_ci: Callable[[str], Rendered], tmp_path: Path) -> None:
    """Server from its rendered command, store from the router's rendered address; the plain port is closed."""
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    made = ["-keyout", str(tmp_path / "tls.key"), "-out", str(tmp_path / "tls.crt")]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command = ["openssl", "req", "-x509", *curve, *made, "-days", "2", "-subj", "/CN=redis", "-addext", names]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    (tmp_path / "ca.crt").write_bytes((tmp_path / "tls.crt").read_bytes())
    rendered = of_ci("edge-fleet")
    trust = {"ssl": True, "ssl_ca_certs": str(tmp_path / "ca.crt"), "host": "127.0.0.1"}
    with _running(rendered, tmp_path, **trust) as server:
        settings = yaml.safe_load(rendered.one("ConfigMap", "demo-isthmus-router")["data"]["isthmus.yaml"])
        url = settings["router"]["state"]["url"].replace("demo-isthmus-redis:6379", f"127.0.0.1:{server.port}")
        url = url.replace("/run/isthmus/secrets/redis-ca", str(tmp_path))
        link = RedisLink(RedisAddress(url=url, password=ROUTER_PASSWORD), SystemClock(), limit_s=10)
        store = RedisStateStore(link, SystemClock(), ttl_s=5)
        beat = Heartbeat(
            backend_id="pi", instance="instance-1", sequence=1, url="http://127.0.0.1:1", state=BackendState.READY
        )
        try:
            assert await store.publish(beat)
        finally:
            await store.close()
        with pytest.raises(RedisError), server.client("router", ROUTER_PASSWORD) as plain:
            plain.ping()
        (tmp_path / "ca.crt").write_text("")
        with pytest.raises((RedisError, OSError)):
            Redis(port=server.port, username="router", password=ROUTER_PASSWORD, **trust).ping()
