"""A node is lost under load: its streams break honestly, the other node serves on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cloud.options import deployment_name
from cloud.render import APP_NAME
from edge.packages.catalogue import DEFAULT_MODEL
from shared.testing.ray_nodes import RayCluster, until
from shared.testing.stack import free_ports
from tests.cloud.nodes.conftest import READY_LIMIT_S, Client, chat, config_of

pytestmark = [pytest.mark.cloud, pytest.mark.slow, pytest.mark.timeout(1800)]

STREAMS = 6


def test_a_lost_node_breaks_its_own_streams_within_two_seconds_and_no_other(
    home: Path, cluster_on: Callable[..., RayCluster]
) -> None:
    """Two nodes, each with room for one replica; the ingress is on the one that stays."""
    port, lost_port = free_ports(2)
    cluster = cluster_on()
    cluster.start_head(cpus=3)
    two = {"threads": 2, "autoscaling": {"min_replicas": 2, "max_replicas": 2, "max_ongoing_requests": 16}}
    cluster.deploy(config_of(home, port, model=two))
    client = Client(port)
    # The first replica and the ingress are where the only node is; the second replica has to go to the other.
    until(lambda: client.state() == "ready", READY_LIMIT_S)
    worker = cluster.start_worker(cpus=2, serve_port=lost_port)
    until(lambda: len(running(cluster)) == 2, READY_LIMIT_S)

    streams = [client.stream(max_tokens=600) for _ in range(STREAMS)]
    worker.kill()
    killed_s = time.monotonic()
    assert client.ask(chat())[0] == 200, "the next request is served by the node that is left"
    ended = [stream.wait(READY_LIMIT_S) for stream in streams]
    broken = [stream for stream in ended if stream.broken]
    assert broken, "the lost node had streams"
    assert all(stream.ended_s - killed_s < 2 for stream in broken)
    assert sum(stream.whole for stream in ended) == STREAMS - len(broken) > 0
    assert [client.ask(chat())[0] for _ in range(4)] == [200] * 4


def running(cluster: RayCluster) -> list[str]:
    found = cluster.application(APP_NAME)["deployments"][deployment_name(DEFAULT_MODEL)]["replicas"]
    return [each["replica_id"] for each in found if each["state"] == "RUNNING"]
