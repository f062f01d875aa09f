"""What each tier is to the launcher: how it is started, when it is ready, what it needs of the machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import orjson

from shared.launcher.settings import TierName


@dataclass(frozen=True, slots=True)
class Tier:
    """One tier. `is_ready` judges the body of a 200 answer from `ready_path`."""

    name: TierName
    serve: tuple[str, ...]
    ready_path: str
    is_ready: Callable[[bytes], bool]
    prepare: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Commands to run before the first start, each with the words that a person reads."""
    first_start_bytes: int = 0
    """Disk that preparing takes."""
    needs_compiler: bool = False


def _answered(body: bytes) -> bool:
    return True


AT_REST = frozenset({"ready", "scaled_to_zero"})
"""States of a model of which nothing is being waited for: without replicas it starts when somebody asks for it."""


def _every_model_at_rest(body: bytes) -> bool:
    try:
        models = orjson.loads(body)["models"]
        return bool(models) and all(model["state"] in AT_REST for model in models)
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return False


EDGE = Tier(
    "edge",
    serve=("edge", "serve"),
    ready_path="/readyz",
    is_ready=_answered,
    prepare=(("importing the default model", ("edge", "pull")),),
    first_start_bytes=400 * 1024**2,
)
ROUTER = Tier("router", serve=("router", "serve"), ready_path="/readyz", is_ready=_answered)
CLOUD = Tier(
    "cloud",
    serve=("cloud", "serve"),
    ready_path="/ops/capacity",
    is_ready=_every_model_at_rest,
    prepare=(("preparing the checkpoint", ("cloud", "checkpoint")),),
    first_start_bytes=1536 * 1024**2,
    needs_compiler=True,
)
TIERS: dict[TierName, Tier] = {tier.name: tier for tier in (EDGE, ROUTER, CLOUD)}
