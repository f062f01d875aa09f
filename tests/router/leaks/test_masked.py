"""Canaries through a router that masks: the cloud is used and gets no byte of them; what cannot be masked stays."""

from __future__ import annotations

from typing import Any

import pytest

from router.privacy import placeholders
from shared.testing import answers
from shared.testing.upstream import Upstream
from tests.router.conftest import StartRouter
from tests.router.leaks.canaries import assert_no_canary, canaries
from tests.router.leaks.watching import FOUND_CLASSES, MASKING, full_audit_log, kept, send_all, watched


async def test_pv_03_canaries_are_masked_before_they_travel(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    """Under `mask` the cloud is used, and gets no byte of a canary; what cannot be masked stays."""
    sent = canaries()
    async with watched(start_router, edge, cloud, policy={"actions": MASKING}) as router:
        seen = await send_all(router, sent)
    assert {status for status, _, _ in seen} == {200}
    assert {privacy_class for _, privacy_class, _ in seen} <= FOUND_CLASSES
    travelled = [canary for canary, (_, _, tier) in zip(sent, seen, strict=True) if tier == "cloud"]
    assert len(travelled) > len(sent) // 2
    assert "key" not in {canary.place for canary in travelled}
    for exchange in cloud.exchanges:
        assert_no_canary(exchange, sent)


@pytest.mark.parametrize("fault", ["breaks", "500", "dead"])
async def test_pv_03_canaries_are_masked_when_the_first_backend_fails(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, fault: str
) -> None:
    """Failover to the cloud carries the masked body, never the one that the edge got."""
    policy = {"mode": "prefer_edge", "actions": MASKING}
    sent = canaries(step=4)
    async with watched(start_router, edge, cloud, policy=policy) as router:
        faults: dict[str, Any] = {"500": answers.failure(500), "breaks": answers.hang_up()}
        if fault == "dead":
            await edge.refuse()
        else:
            edge.default = lambda exchange: faults[fault]
        await send_all(router, sent)
    assert cloud.exchanges
    for exchange in cloud.exchanges:
        assert_no_canary(exchange, sent)


async def test_canaries_are_masked_or_stay_when_the_map_of_placeholders_is_full(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placeholders, "MAX_VALUES", 0)
    async with watched(start_router, edge, cloud, policy={"actions": MASKING}) as router:
        await kept(router, cloud, canaries(step=8), classes=FOUND_CLASSES, statuses={200})


async def test_masked_canaries_stay_too_when_the_audit_log_cannot_be_written(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    """What is not recorded is not served, masked or not."""
    policy = {"actions": MASKING}
    async with watched(start_router, edge, cloud, policy=policy) as router, full_audit_log(router):
        await kept(router, cloud, canaries(step=8), classes=FOUND_CLASSES, statuses={503})
