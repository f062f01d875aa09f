"""`/ops/capacity`: live figures, the edge tier's digest, and no model woken by being watched."""

from __future__ import annotations

import json
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cloud.options import engine_kwargs
from cloud.settings import AcceleratorSettings, ModelSettings
from cloud.sizing.geometry import geometry_of
from cloud.sizing.plan import CPU_BLOCK_TOKENS, KvLayout, kv_cache
from cloud.sizing.sources import config_of
from edge.packages.catalogue import DEFAULT_MODEL
from shared.fleet import CloudCapacity
from tests.cloud.cluster.conftest import Cluster, endless, eventually, leave
from tests.conftest import ASLEEP

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]


def test_it_is_what_routers_read_and_names_the_edge_tiers_digest(quiet: Cluster) -> None:
    capacity = CloudCapacity.model_validate(quiet.capacity())
    with urllib.request.urlopen(f"{quiet.stack.urls['edge']}/v1/models", timeout=30) as models:
        edge = json.load(models)["data"][0]
    assert (edge["id"], capacity.digest) == (DEFAULT_MODEL, edge["digest"])
    assert (capacity.state, capacity.context_tokens, capacity.replicas_ready) == ("ready", 512, 1)
    assert (capacity.running, capacity.waiting, capacity.kv_cache_use_ratio) == (0, 0, 0.0)
    assert (capacity.max_concurrency, capacity.replicas_starting) == (8, 0)


def test_the_plan_counts_the_cache_as_the_engine_does(quiet: Cluster) -> None:
    """KV tokens that vLLM reported at its start, against the arithmetic of `isthmus cloud plan`."""
    model = ModelSettings(model_id=DEFAULT_MODEL, source=f"package:{DEFAULT_MODEL}")
    kwargs = engine_kwargs(model, AcceleratorSettings())
    shape = geometry_of(config_of(DEFAULT_MODEL, quiet.stack.home / "checkpoints"))
    layout = KvLayout(block_tokens=CPU_BLOCK_TOKENS, element_bytes=4)
    counted = kv_cache(shape, kwargs["kv_cache_memory_bytes"], context_tokens=512, layout=layout)
    assert quiet.capacity()["kv_cache_tokens"] == counted.tokens


def test_it_shows_a_running_request_and_its_end(quiet: Cluster) -> None:
    connection = quiet.connect()
    connection.request(
        "POST", "/v1/chat/completions", json.dumps(endless(stream=True)).encode(), {"Content-Type": "application/json"}
    )
    response = connection.getresponse()
    assert response.read(10)
    busy = eventually(lambda: (seen := quiet.capacity())["running"] == 1 and seen["kv_cache_use_ratio"] > 0 and seen)
    assert busy["waiting"] == 0
    leave(connection)
    eventually(lambda: (seen := quiet.capacity())["running"] == 0 and seen["kv_cache_use_ratio"] == 0)


def test_a_sleeping_model_is_listed_and_stays_asleep_while_it_is_watched(cluster: Cluster) -> None:
    """SC-01: neither polling nor the model list reaches a replica."""
    for _ in range(30):
        capacity = cluster.capacity(ASLEEP)
        assert capacity["state"] == "scaled_to_zero"
        assert (capacity["replicas_ready"], capacity["replicas_target"]) == (0, 0)
        assert capacity["running"] is None
        listed = [model["id"] for model in cluster.ask("GET", "/v1/models").json["data"]]
        assert listed == [DEFAULT_MODEL, ASLEEP]
        assert cluster.ask("GET", f"/v1/models/{ASLEEP}").status == 200


def test_vllms_own_metrics_are_relayed_under_their_own_names(quiet: Cluster) -> None:
    """Names, labels and values as the engine's own exposition has them, of the replica that runs and no other."""
    before = _prompt_tokens(quiet)
    assert (
        quiet.ask("POST", "/v1/completions", {"model": DEFAULT_MODEL, "prompt": "a b c", "max_tokens": 2}).status == 200
    )
    after = eventually(lambda: (seen := _prompt_tokens(quiet)) and seen != before and seen)
    ((labels, count),) = after.items()
    assert dict(labels).keys() == {"engine", "model_name", "replica"}
    assert count - sum(before.values()) >= 3
    assert quiet.capacity(ASLEEP)["state"] == "scaled_to_zero"


def _prompt_tokens(cluster: Cluster) -> dict[frozenset[tuple[str, str]], float]:
    with urllib.request.urlopen(f"{cluster.stack.urls['cloud']}/ops/metrics", timeout=30) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    assert all(family.name.startswith("vllm:") for family in families)
    assert {"vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:time_to_first_token_seconds"} <= {
        family.name for family in families
    }
    (tokens,) = [family for family in families if family.name == "vllm:prompt_tokens"]
    return {
        frozenset(sample.labels.items()): sample.value for sample in tokens.samples if sample.name.endswith("_total")
    }


def test_other_paths_below_ops_are_not_found(cluster: Cluster) -> None:
    answer = cluster.ask("GET", "/ops/other")
    assert (answer.status, answer.error["code"]) == (404, "unknown_route")


@pytest.mark.slow
def test_a_request_wakes_a_sleeping_model_and_it_falls_asleep_again_while_it_is_watched(cluster: Cluster) -> None:
    """SC-01: what routers and Prometheus ask all the time is no load."""
    answer = cluster.client.with_options(timeout=600).completions.create(model=ASLEEP, prompt="One, two,", max_tokens=4)
    assert answer.choices[0].text
    assert cluster.capacity(ASLEEP)["state"] == "ready"
    eventually(
        lambda: cluster.ask("GET", "/ops/metrics").body and cluster.capacity(ASLEEP)["state"] == "scaled_to_zero", 240
    )
