"""Judges whether one model takes work, from what Serve and its replicas say: pure, so that every case is testable.

`serve.status` asks the controller and `engine_stats` asks replicas that run already, so a model that is scaled to
zero stays asleep while it is watched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from cloud.settings import OpsModel
from shared.fleet import BackendState, CloudAdapter, CloudCapacity

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
    def starting(self) -> int:
        """Replicas that are on their way."""
        return self.target - self.running

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
    kv_cache_tokens: int | None = None
    prefix_hit_ratio: float | None = None
    output_tokens_per_s: float = 0.0
    adapters: tuple[str, ...] = ()
    """Names of those that are loaded."""


@dataclass(frozen=True, slots=True)
class ServeView:
    """What Serve says of the OpenAI application; a deployment that does not exist yet is None."""

    ingress: DeploymentView | None
    model: DeploymentView | None
    app_status: str
    draining: bool = False


def capacity_of(
    model: OpsModel,
    view: ServeView,
    loads: Sequence[ReplicaLoad] | None,
    adapters: Mapping[str, str] = MappingProxyType({}),
) -> CloudCapacity:
    """The model's capacity. `loads` has one entry for each replica that answered; None where none was asked.

    `adapters` are the registered ones: digest by name.

    A replica that Serve still lists and that does not answer counts as not ready: its engine is gone, and Serve
    will notice at its next health check.
    """
    running = view.model.running if view.model else 0
    ready = min(running, len(loads)) if loads is not None else 0
    state = _state(view, ready)
    told = loads if state is BackendState.READY and loads else None
    return CloudCapacity(
        model_id=model.model_id,
        state=state,
        digest=model.digest,
        tokenizer=model.tokenizer,
        context_tokens=model.context_tokens,
        features=_FEATURES if model.tool_call_parser is None else (*_FEATURES, "tools"),
        replicas_ready=ready,
        replicas_target=view.model.target if view.model else 0,
        replicas_starting=view.model.starting if view.model else 0,
        running=sum(load.running for load in told) if told else None,
        waiting=sum(load.waiting for load in told) if told else None,
        kv_cache_use_ratio=max(load.kv_cache_use_ratio for load in told) if told else None,
        kv_cache_tokens=_sum([load.kv_cache_tokens for load in told]) if told else None,
        prefix_hit_ratio=_mean([load.prefix_hit_ratio for load in told]) if told else None,
        output_tokens_per_s=sum(load.output_tokens_per_s for load in told) if told else None,
        max_concurrency=model.max_num_seqs,
        adapters=tuple(
            CloudAdapter(name=name, digest=digest, replicas=sum(name in load.adapters for load in told or ()))
            for name, digest in adapters.items()
        ),
    )


def _sum(figures: Sequence[int | None]) -> int | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) if len(known) == len(figures) else None


def _mean(figures: Sequence[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) / len(known) if known else None


def _state(view: ServeView, ready: int) -> BackendState:
    if view.draining or view.app_status == "DELETING":
        return BackendState.DRAINING
    has_ingress = view.ingress is not None and view.ingress.running > 0
    if ready and has_ingress:
        return BackendState.READY
    if view.app_status == "DEPLOY_FAILED" or (view.model and _has_failed(view.model)):
        return BackendState.FAILED
    if has_ingress and view.model and view.model.status == "HEALTHY" and view.model.target == 0:
        return BackendState.SCALED_TO_ZERO
    return BackendState.STARTING


def _has_failed(model: DeploymentView) -> bool:
    """Whether Serve has given up on it. One that lost its replica is unhealthy too, until the next one runs."""
    return model.status == "DEPLOY_FAILED" or (model.status == "UNHEALTHY" and model.starting == 0)
