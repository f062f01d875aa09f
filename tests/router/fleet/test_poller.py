"""Clouds and static edges are asked what they serve, and believed no further than their answers go."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from router.fleet.poller import CapacityPoller, Polled
from shared.fleet import BackendState, CloudCapacity, ServedModel, Zone
from shared.testing.answers import MODEL
from shared.testing.clock import ManualClock
from shared.testing.upstream import Upstream


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


def poller_of(session: aiohttp.ClientSession, upstream: Upstream, **fields: object) -> CapacityPoller:
    polled = Polled(**{"backend_id": "b", "zone": Zone.CLOUD, "url": upstream.url, **fields})  # type: ignore[arg-type]
    return CapacityPoller(session, (polled,), ManualClock(), limit_s=2)


def capacity(model: str, state: BackendState, **fields: object) -> CloudCapacity:
    return CloudCapacity(model_id=model, state=state, **fields)  # type: ignore[arg-type]


async def test_load_of_all_models_is_summed(session: aiohttp.ClientSession, cloud: Upstream) -> None:
    cloud.capacity = [
        capacity(
            "a", BackendState.READY, running=2, waiting=1, max_concurrency=8, replicas_ready=2, context_tokens=4096
        ),
        capacity("b", BackendState.SCALED_TO_ZERO, running=0, waiting=0, max_concurrency=8, replicas_ready=0),
        capacity("c", BackendState.STARTING),
    ]
    poller = poller_of(session, cloud)
    assert poller.standing("b").state is BackendState.STARTING
    await poller.poll()
    standing = poller.standing("b")
    assert standing.state is BackendState.READY
    assert [m.model_id for m in standing.models] == ["a", "b"]
    assert (standing.slots_total, standing.slots_busy, standing.queued) == (24, 2, 1)


async def test_a_missing_figure_makes_the_sum_unknown(session: aiohttp.ClientSession, cloud: Upstream) -> None:
    """FS-03: missing load is neither idle nor full."""
    cloud.capacity = [capacity("a", BackendState.READY, running=2), capacity("b", BackendState.READY)]
    poller = poller_of(session, cloud)
    await poller.poll()
    assert poller.standing("b").slots_busy is None


async def test_without_a_capacity_route_the_model_list_serves(session: aiohttp.ClientSession, cloud: Upstream) -> None:
    cloud.capacity = []
    poller = poller_of(session, cloud, zone=Zone.DEVICE)
    await poller.poll()
    assert poller.standing("b").state is BackendState.READY
    assert [m.model_id for m in poller.standing("b").models] == [MODEL]
    assert all(line == "GET /v1/models" for c in cloud.connections for line in c.requests)


async def test_capacity_says_what_features_a_model_has(session: aiohttp.ClientSession, cloud: Upstream) -> None:
    cloud.capacity = [capacity(MODEL, BackendState.READY, features=("continuation", "tools"))]
    poller = poller_of(session, cloud)
    await poller.poll()
    assert [m.features for m in poller.standing("b").models] == [("continuation", "tools")]


async def test_models_said_by_the_operator_win(session: aiohttp.ClientSession, cloud: Upstream) -> None:
    said = (ServedModel(model_id="said"),)
    poller = poller_of(session, cloud, models=said)
    await poller.poll()
    assert poller.standing("b").models == said


async def test_a_refused_connection_fails_at_once_and_an_answer_heals(
    session: aiohttp.ClientSession, cloud: Upstream
) -> None:
    poller = poller_of(session, cloud)
    await poller.poll()
    await cloud.refuse()
    await poller.poll()
    assert poller.standing("b").state is BackendState.FAILED
    await cloud.accept()
    await poller.poll()
    assert poller.standing("b").state is BackendState.READY
