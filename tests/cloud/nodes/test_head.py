"""The head is lost while its tables are in Redis: workers serve on, and the next head goes on where it ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloud.options import deployment_name
from cloud.render import APP_NAME
from edge.packages.catalogue import DEFAULT_MODEL
from shared.testing.ray_nodes import RayCluster, until
from shared.testing.redis_server import RedisServer
from shared.testing.stack import free_ports
from tests.cloud.nodes.conftest import READY_LIMIT_S, Client, chat, config_of

pytestmark = [pytest.mark.cloud, pytest.mark.slow, pytest.mark.timeout(1800)]

RECOVERY_LIMIT_S = 120.0


def replicas(cluster: RayCluster) -> list[dict[str, Any]]:
    found = cluster.application(APP_NAME)["deployments"][deployment_name(DEFAULT_MODEL)]["replicas"]
    return [each for each in found if each["state"] == "RUNNING"]


def test_workers_serve_while_the_head_is_gone_and_the_next_one_takes_over(
    home: Path, cluster_on: Callable[..., RayCluster], redis_server: RedisServer
) -> None:
    """RY-03: no replica and no traffic on the head, its tables in Redis."""
    port, serve_port = free_ports(2)
    cluster = cluster_on(redis_server)
    head = cluster.start_head(cpus=0)
    cluster.start_worker(cpus=3, serve_port=serve_port)
    cluster.deploy(config_of(home, port))
    client = Client(serve_port)
    until(lambda: client.state() == "ready", READY_LIMIT_S)
    [before] = replicas(cluster)

    stream = client.stream(max_tokens=400)
    assert stream.running
    head.kill()
    assert [client.ask(chat())[0] for _ in range(3)] == [200] * 3
    assert stream.wait(READY_LIMIT_S).whole
    assert client.ask(chat())[0] == 200

    cluster.start_head(cpus=0)
    until(lambda: cluster.application(APP_NAME)["status"] == "RUNNING", RECOVERY_LIMIT_S)
    assert [each["replica_id"] for each in replicas(cluster)] == [before["replica_id"]], "it was not started again"
    assert client.ask(chat())[0] == 200
    until(lambda: client.state() == "ready", RECOVERY_LIMIT_S)
    # The controller rules again: what dies now is replaced.
    cluster.kill_process(before["pid"])
    until(lambda: [r for r in replicas(cluster) if r["replica_id"] != before["replica_id"]], READY_LIMIT_S)
    assert until(lambda: client.ask(chat())[0] == 200, RECOVERY_LIMIT_S)
