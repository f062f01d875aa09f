"""The judgement behind `/ops/capacity`, case by case."""

from __future__ import annotations

import pytest

from cloud.availability import DeploymentView, ReplicaLoad, ServeView, capacity_of
from cloud.settings import OpsModel
from shared.fleet import BackendState

MODEL = OpsModel(model_id="m", digest="sha256:" + "a" * 64, context_tokens=2048, max_num_seqs=8)
INGRESS = DeploymentView("HEALTHY", {"RUNNING": 1})
IDLE = ReplicaLoad(running=0, waiting=0, kv_cache_use_ratio=0.0)


def view(
    status: str = "HEALTHY",
    *,
    app: str = "RUNNING",
    ingress: DeploymentView | None = INGRESS,
    draining: bool = False,
    **replicas: int,
) -> ServeView:
    return ServeView(ingress=ingress, model=DeploymentView(status, replicas), app_status=app, draining=draining)


@pytest.mark.parametrize(
    ("seen", "loads", "state"),
    [
        (view(RUNNING=1), [IDLE], BackendState.READY),
        (view("UPDATING", app="DEPLOYING", RUNNING=1, STARTING=1), [IDLE], BackendState.READY),
        (view("UPDATING", app="DEPLOYING", STARTING=1), None, BackendState.STARTING),
        (view("UPSCALING", STARTING=1), None, BackendState.STARTING),
        (view(), None, BackendState.SCALED_TO_ZERO),
        (view(STOPPING=1), None, BackendState.SCALED_TO_ZERO),
        (view("DEPLOY_FAILED", app="DEPLOY_FAILED"), None, BackendState.FAILED),
        (view("UNHEALTHY", STARTING=1), None, BackendState.STARTING),
        (view("UNHEALTHY"), None, BackendState.FAILED),
        (view(RUNNING=1, draining=True), [IDLE], BackendState.DRAINING),
        (view(RUNNING=1, app="DELETING"), [IDLE], BackendState.DRAINING),
        (view(RUNNING=1, ingress=DeploymentView("UPDATING", {"STARTING": 1})), [IDLE], BackendState.STARTING),
        (view(RUNNING=1, ingress=None), [IDLE], BackendState.STARTING),
        (ServeView(ingress=None, model=None, app_status="NOT_STARTED"), None, BackendState.STARTING),
    ],
)
def test_state(seen: ServeView, loads: list[ReplicaLoad] | None, state: BackendState) -> None:
    assert capacity_of(MODEL, seen, loads).state is state


def test_a_replica_that_does_not_answer_is_not_ready() -> None:
    """Serve lists a replica as running until its next health check; its silence says more."""
    capacity = capacity_of(MODEL, view(RUNNING=1), [])
    assert capacity.state is BackendState.STARTING
    assert (capacity.replicas_ready, capacity.replicas_target) == (0, 1)
    assert capacity.running is None
    assert capacity_of(MODEL, view(RUNNING=2), [IDLE]).replicas_ready == 1


def test_load_adds_up_over_replicas_and_the_fullest_cache_counts() -> None:
    loads = [ReplicaLoad(3, 1, 0.25, 1000, 0.5, 20.0), ReplicaLoad(5, 0, 0.75, 1000, None, 10.0)]
    capacity = capacity_of(MODEL, view(RUNNING=2), loads)
    assert (capacity.running, capacity.waiting, capacity.kv_cache_use_ratio) == (8, 1, 0.75)
    assert (capacity.max_concurrency, capacity.digest, capacity.context_tokens) == (8, MODEL.digest, 2048)
    assert (capacity.kv_cache_tokens, capacity.prefix_hit_ratio, capacity.output_tokens_per_s) == (2000, 0.5, 30.0)
    assert "tools" not in capacity.features
    reads_calls = MODEL.model_copy(update={"tool_call_parser": "hermes"})
    assert "tools" in capacity_of(reads_calls, ServeView(None, None, "RUNNING"), None).features


def test_replicas_that_start_are_told_apart_from_those_that_run() -> None:
    capacity = capacity_of(MODEL, view("UPSCALING", RUNNING=1, STARTING=2, STOPPING=1), [IDLE])
    assert (capacity.replicas_ready, capacity.replicas_starting, capacity.replicas_target) == (1, 2, 3)
    assert capacity.kv_cache_tokens is None


def test_a_sleeping_model_has_no_load_rather_than_no_figures_of_zero() -> None:
    capacity = capacity_of(MODEL, view(), None)
    assert (capacity.running, capacity.waiting, capacity.kv_cache_use_ratio) == (None, None, None)
    assert capacity.replicas_target == 0
