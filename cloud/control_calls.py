"""Keeps calls that ask replicas about themselves apart from requests: they take no slot, and are no load.

Ray Serve counts every call to a replica as a request. A replica that is full would then answer no question until one of
its requests ends, and would look dead just when it is busiest; and a model that is asked for its load every second
would look used, and never be scaled to zero. Internal to Ray, like all of `cloud.rayllm`, but needed where that module
is too heavy to load.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator
from typing import Any

CONTROL_METHODS = frozenset(
    {"begin_drain", "engine_metrics", "engine_stats", "load_adapter", "open_requests", "start_stages", "unload_adapter"}
)
"""Methods of ours that no client's request calls; the ingress's own routes of two of these names come as `__call__`."""
_COUNTED = "RAY_SERVE_COLLECT_AUTOSCALING_METRICS_ON_HANDLE"


def answer_beside_requests() -> None:
    """Let the replica in this process answer control calls also while all its slots are taken."""
    replica: Any = importlib.import_module("ray.serve._private.replica").Replica
    with_slot: Any = replica._start_request
    if getattr(with_slot, "besides_control_calls", False):
        return

    @contextlib.asynccontextmanager
    async def start_request(self: Any, request_metadata: Any) -> AsyncIterator[None]:
        if request_metadata.call_method in CONTROL_METHODS:
            yield
            return
        async with with_slot(self, request_metadata):
            yield

    start_request.besides_control_calls = True  # type: ignore[attr-defined]
    replica._start_request = start_request


def count_no_calls_as_load() -> None:
    """Let no call that this process makes count for the autoscaling of the deployment that it calls."""
    setattr(importlib.import_module("ray.serve._private.router"), _COUNTED, False)


async def answers_in_time(handle: Any, method: str, limit_s: float) -> list[Any]:
    """What each running replica behind `handle` says to `method`; one that fails or is silent is left out, alone.

    Raises:
        DeploymentUnavailableError: no replica runs.
        TimeoutError: Serve itself did not say within `limit_s` which ones run.
    """
    # Ray's own way to collect the answers has one limit for all: one replica that hangs would silence every other.
    calls = await asyncio.wait_for(handle.broadcast(method)._fetch_replica_results_async(), limit_s)
    answers = await asyncio.gather(
        *(asyncio.wait_for(call.get_async(), limit_s) for call in calls), return_exceptions=True
    )
    return [answer for answer in answers if not isinstance(answer, BaseException)]
