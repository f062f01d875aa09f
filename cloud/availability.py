"""Judges whether one model takes work, from what Serve and its replicas say: pure, so that every case is testable.

`serve.status` asks the controller and `engine_stats` asks replicas that run already, so a model that is scaled to
zero stays asleep while it is watched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cloud.settings import OpsModel
from shared.fleet import BackendState, CloudCapacity

_FAILED = frozenset({"DEPLOY_FAILED", "UNHEALTHY"})
_FEATURES = ("continuation", "logprobs", "structured_output")
"""What vLLM does for every model; tool calls need a parser for the model's own way of writing them."""
_COMING = ("STARTING", "UPDATING", "RECOVERING", "RUNNING", "PENDING_MIGRATION")


@dataclass(frozen=True, slots=True)
class DeploymentView:
    """One Serve deployment: its status and how many replicas are in each state."""

    status: str
    replicas: Mapping[str, int]

    @property
    def running(self) -> int:
        """Replicas that Serve sends requests to."""
        return self.replicas.get("RUNNING", 0)

    @property
    def target(self) -> int:
        """Replicas that run or will."""
        return sum(self.replicas.get(state, 0) for state in _COMING)


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """What one replica's engine reports now."""

    running: int
    waiting: int
    kv_cache_use_ratio: float


@dataclass(frozen=True, slots=True)
class ServeView:
    """What Serve says of the OpenAI application; a deployment that does not exist yet is None."""

    ingress: DeploymentView | None
    model: DeploymentView | None
    app_status: str
    draining: bool = False


def capacity_of(model: OpsModel, view: ServeView, loads: Sequence[ReplicaLoad] | None) -> CloudCapacity:
    """The model's capacity. `loads` has one entry for each replica that answered; None where none was asked.

    A replica that Serve still lists and that does not answer counts as not ready: its engine is gone, and Serve
    will notice at its next health check.
    """
    running = view.model.running if view.model else 0
    ready = min(running, len(loads)) if loads is not None else 0
    state = _state(view, ready)
    known = state is BackendState.READY and loads is not None
    return CloudCapacity(
        model_id=model.model_id,
        state=state,
        digest=model.digest,
        tokenizer=model.tokenizer,
        context_tokens=model.context_tokens,
        features=_FEATURES if model.tool_call_parser is None else (*_FEATURES, "tools"),
        replicas_ready=ready,
        replicas_target=view.model.target if view.model else 0,
        running=sum(load.running for load in loads) if known and loads else None,
        waiting=sum(load.waiting for load in loads) if known and loads else None,
        kv_cache_use_ratio=max(load.kv_cache_use_ratio for load in loads) if known and loads else None,
        max_concurrency=model.max_num_seqs * max(1, ready),
    )


def _state(view: ServeView, ready: int) -> BackendState:
    if view.draining or view.app_status == "DELETING":
        return BackendState.DRAINING
    has_ingress = view.ingress is not None and view.ingress.running > 0
    if ready and has_ingress:
        return BackendState.READY
    if view.app_status == "DEPLOY_FAILED" or (view.model and view.model.status in _FAILED):
        return BackendState.FAILED
    if has_ingress and view.model and view.model.status == "HEALTHY" and view.model.target == 0:
        return BackendState.SCALED_TO_ZERO
    return BackendState.STARTING
