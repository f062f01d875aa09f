"""Heat of a device as clients of the router meet it: load moves before the throttle, caps keep their reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.fleet import ThermalLevel
from shared.http.names import OUTPUT_CAP_HEADER
from shared.testing import answers
from shared.testing.upstream import Upstream
from tests.router.conftest import PERSONAL_TEXT, StartRouter

RATES = {"prefill_tokens_per_s": 400.0, "decode_tokens_per_s": 100.0, "slots_total": 1, "slots_busy": 0}


async def test_load_moves_to_the_cloud_before_the_device_is_critical(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], policy={"dwell_ms": 0})
    hot = {"level": ThermalLevel.HOT, "derate_ratio": 0.6, **RATES}
    await router.report(edge, **hot)
    async with router.ask() as answer:
        assert answer.headers["x-isthmus-tier"] == "edge"
    await router.report(edge, **hot, seconds_to_throttle=2.0)
    async with router.ask() as answer:
        assert (answer.headers["x-isthmus-tier"], answer.headers["x-isthmus-reason"]) == ("cloud", "edge_too_slow")
    async with router.ask(PERSONAL_TEXT) as answer:
        assert (answer.status, answer.headers["x-isthmus-tier"]) == (200, "edge")  # nowhere else may it go
    async with router.session.get(f"{router.url}/fleet/v1/backends") as answer:
        [device] = [b for b in (await answer.json())["backends"] if b["tier"] == "edge"]
    assert (device["seconds_to_throttle"], device["level"]) == (2.0, "hot")


@pytest.mark.parametrize("stream", [False, True])
async def test_the_reason_of_a_cap_reaches_the_client(start_router: StartRouter, edge: Upstream, stream: bool) -> None:
    router = await start_router()
    await router.report(edge, **RATES)
    for value, passed in (("64; reason=thermal", True), ("64; reason=<script>", False), ("x" * 4000, False)):
        good = answers.stream("Pa", "ris") if stream else answers.completion("Paris")
        edge.script(replace(good, headers={**good.headers, OUTPUT_CAP_HEADER: value}))
        async with router.ask(stream=stream) as answer:
            assert answer.status == 200
            assert (OUTPUT_CAP_HEADER in answer.headers) is passed
            await answer.read()
