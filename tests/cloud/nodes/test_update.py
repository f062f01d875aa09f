"""A new version of the config while streams run: none is cut within the drain limit, and no request fails meanwhile."""

from __future__ import annotations

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

STREAMS = 4


def test_an_update_cuts_no_stream_and_fails_no_request(home: Path, cluster_on: Callable[..., RayCluster]) -> None:
    [port] = free_ports(1)
    cluster = cluster_on()
    cluster.start_head(cpus=4)
    life = {"drain_s": 400}
    cluster.deploy(config_of(home, port, life=life))
    client = Client(port)
    until(lambda: client.state() == "ready", READY_LIMIT_S)
    [before] = replicas(cluster)

    # Longer than the next replica takes to start, so that both versions run side by side.
    streams = [client.stream(max_tokens=1900) for _ in range(STREAMS)]
    cluster.deploy(config_of(home, port, life=life, model={"context_tokens": 2032}))
    answers = []

    def replaced() -> bool:
        answers.append(client.ask(chat(), READY_LIMIT_S)[0])
        return bool(replicas(cluster)) and before not in replicas(cluster)

    until(replaced, READY_LIMIT_S)
    assert any(stream.running for stream in streams), "the update was over only after the streams"
    assert [stream.wait(READY_LIMIT_S).whole for stream in streams] == [True] * STREAMS
    assert set(answers) == {200}
    assert client.ask(chat(max_tokens=2040))[0] == 400, "the new version answers: its context is smaller"


def replicas(cluster: RayCluster) -> list[str]:
    found = cluster.application(APP_NAME)["deployments"][deployment_name(DEFAULT_MODEL)]["replicas"]
    return [each["replica_id"] for each in found if each["state"] == "RUNNING"]
