"""Heartbeats, the fleet's picture, models, explanations, probes and metrics of a running router."""

from __future__ import annotations

import random

import pytest

from router.audit.files import find_policy
from router.audit.replay import replay
from router.fleet.roster import BULK_FROM
from shared.fleet import BackendState, FleetSnapshot, ServedModel
from shared.testing.answers import MODEL
from shared.testing.upstream import Upstream
from tests.router.conftest import PERSONAL_TEXT, StartRouter, eventually

DIGEST = "sha256:" + "a" * 64


async def test_reports_out_of_order_are_refused(start_router: StartRouter, edge: Upstream) -> None:
    router = await start_router()
    assert await router.report(edge, sequence=5) == 204
    assert await router.report(edge, sequence=4) == 409
    assert await router.report(edge, instance="instance-two", sequence=0) == 204
    assert await router.report(edge, sequence=6) == 409, "the replaced process must not come back"


async def test_a_bad_report_names_its_field(start_router: StartRouter) -> None:
    router = await start_router()
    async with router.send(b'{"backend_id":"../etc"}', path="/fleet/v1/heartbeats") as response:
        assert response.status == 400
        assert "etc" not in await response.text()


@pytest.mark.parametrize("url", ["http://0.0.0.0:8081", "https://0.0.0.0", "http://[::]:8081/", "http://[::]"])
async def test_fs_01_an_empty_address_is_none(start_router: StartRouter, url: str) -> None:
    """FS-01 kind: a router that called it would reach its own machine, and perhaps another agent."""
    router = await start_router()
    assert await router.report(url) == 400
    assert await router.report("http://0.0.0.0.nip.example:8081") == 204
    assert [b.url for b in router.router.directory.snapshot().backends] == ["http://0.0.0.0.nip.example:8081"]


async def test_a_silent_device_is_not_used(start_router: StartRouter, edge: Upstream) -> None:
    """FS-01: after the state lifetime nothing is sent there; it comes back with its reports."""
    router = await start_router(policy={"stale_after_ms": 150})
    await router.report(edge)
    async with router.ask() as response:
        assert response.status == 200
    await eventually(lambda: router.router.directory.snapshot().taken_ms - _received(router) > 150)
    async with router.ask() as response:
        assert response.status == 503
    assert len(edge.exchanges) == 1
    await router.report(edge)
    async with router.ask() as response:
        assert response.status == 200


def _received(router: object) -> int:
    [backend] = router.router.directory.snapshot().backends  # type: ignore[attr-defined]
    return int(backend.received_ms)


async def test_an_address_given_to_another_device_is_that_device(start_router: StartRouter, edge: Upstream) -> None:
    """FS-01: the former holder of the address is no longer listed, and its experience is not inherited."""
    router = await start_router()
    await router.report(edge, "pi-old")
    await router.report(edge, "pi-new", models=(ServedModel(model_id="other"),))
    async with router.session.get(f"{router.url}/fleet/v1/backends") as response:
        listed = (await response.json())["backends"]
    assert [b["backend_id"] for b in listed] == ["pi-new"]
    async with router.ask() as response:
        assert response.status == 404
    assert not edge.exchanges


async def test_tk_01_backends_that_tokenize_one_model_differently_are_shown(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    """TK-01: one name, two tokenizers: the fleet view says so; backends that state nothing are not accused."""
    router = await start_router()
    one, other = (ServedModel(model_id="m", tokenizer=digit * 64) for digit in "ab")
    await router.report(edge, "pi-1", models=(one,))
    await router.report(cloud, "pi-2", models=(ServedModel(model_id="m"),))
    async with router.session.get(f"{router.url}/fleet/v1/backends") as response:
        assert (await response.json())["tokenizer_mismatches"] == []
    await router.report(cloud, "pi-3", models=(other,))
    async with router.session.get(f"{router.url}/fleet/v1/backends") as response:
        shown = (await response.json())["tokenizer_mismatches"]
    assert shown == [{"model_id": "m", "backends": [["pi-1"], ["pi-3"]]}]


async def test_a_restarted_agent_starts_with_a_clean_breaker(start_router: StartRouter, edge: Upstream) -> None:
    router = await start_router()
    await router.report(edge)
    await edge.refuse()
    async with router.ask() as response:
        assert response.status in (502, 503)
    await edge.accept()
    await router.report(edge, instance="instance-two", sequence=0)
    [backend] = router.router.directory.snapshot().backends
    assert backend.breaker == "closed"


async def test_a_draining_agent_gets_no_work(start_router: StartRouter, edge: Upstream) -> None:
    router = await start_router()
    await router.report(edge, state=BackendState.DRAINING)
    async with router.ask() as response:
        assert response.status == 503
    assert not edge.exchanges


async def test_models_are_merged(start_router: StartRouter, edge: Upstream, cloud: Upstream) -> None:
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}], aliases={"gpt-4o": MODEL})
    await router.report(edge, models=(ServedModel(model_id=MODEL, digest=DIGEST, context_tokens=2048),))
    async with router.session.get(f"{router.url}/v1/models") as response:
        listed = {m["id"]: m["isthmus"] for m in (await response.json())["data"]}
    assert listed[MODEL]["tiers"] == ["cloud", "edge"]
    assert listed[MODEL]["digests"] == [DIGEST] and listed[MODEL]["context_tokens"] == 2048
    assert listed["gpt-4o"]["alias_of"] == MODEL


async def test_explain_says_everything_and_sends_nothing(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}])
    await router.report(edge)
    body = b'{"model":"%s","messages":[{"role":"user","content":"%s"}]}' % (MODEL.encode(), PERSONAL_TEXT.encode())
    async with router.send(body, path="/router/v1/explain") as response:
        answer = await response.json()
    assert answer["classification"]["class"] == "personal"
    assert answer["classification"]["entities"][0]["kind"] == "card"
    assert [c["backend"] for c in answer["decision"]["candidates"]] == ["edge-1"]
    assert answer["decision"]["rejected"] == [{"backend": "cloud-1", "zone": "cloud", "reason": "privacy"}]
    assert answer["words"]
    assert not edge.exchanges and not cloud.inference_connections


async def test_liveness_needs_no_backend_and_readiness_ends_with_draining(start_router: StartRouter) -> None:
    router = await start_router(clouds=[{"id": "gone", "url": "http://127.0.0.1:9"}])
    for path in ("/healthz", "/readyz"):
        async with router.session.get(router.url + path) as response:
            assert response.status == 200
    router.router.lifecycle.draining = True
    async with router.session.get(router.url + "/readyz") as response:
        assert response.status == 503
    async with router.session.get(router.url + "/healthz") as response:
        assert response.status == 200
    async with router.ask() as response:
        assert response.status == 503 and (await response.json())["error"]["code"] == "draining"
        assert response.headers["Connection"] == "close"


async def test_clients_cannot_grow_the_metrics(start_router: StartRouter, edge: Upstream) -> None:
    """MT-01: names chosen by clients and devices never become labels."""
    router = await start_router()
    await router.report(edge)

    async def series() -> tuple[int, str]:
        async with router.session.get(f"{router.url}/metrics") as response:
            text = await response.text()
        return sum(not line.startswith("#") for line in text.splitlines()), text

    draw = random.Random(3)
    for warm in ({}, {"model": "unknown"}):
        async with router.ask(**warm):
            pass
    before, _ = await series()
    for n in range(150):
        name = f"canary-{draw.random()}"
        async with router.ask(model=name, user=name, headers={"x-request-id": name, "Authorization": f"Bearer {name}"}):
            pass
        async with router.send(b"{}", path=f"/{name}"):
            pass
        await router.report(edge.url + f"/{n}", f"canary-device-{n}", state=BackendState.DRAINING)
    after, text = await series()
    assert after - before < 40
    assert "canary" not in text and len(text) < 1_000_000


async def test_a_large_fleet_is_decided_over_columns_and_recorded_in_part(
    start_router: StartRouter, edge: Upstream
) -> None:
    """The quickest of hundreds serves, what changes between two requests counts, and the record replays."""
    router = await start_router(policy={"stale_after_ms": 600_000})
    count = BULK_FROM + 20
    for n in range(count):
        await router.report(f"http://127.0.0.1:1/{n}", f"pi-{n:03}", prefill_tokens_per_s=100.0 + n)
    await router.report(edge, "pi-best", prefill_tokens_per_s=5_000.0)
    for slower in (5_000.0, 90_000.0):
        async with router.ask() as response:
            assert response.headers["x-isthmus-backend"] == "pi-best"
        await router.report(edge, "pi-best", prefill_tokens_per_s=slower)
    records = await router.records(2)
    for record in records:
        assert len(record["fleet"]) + record["fleet_left_out"] == count + 1
        policy = find_policy(router.audit_dir, record["decision"]["policy"])
        assert policy is not None and replay(record, policy).differences == ()
    fleet = router.router.directory.snapshot()
    view = router.router.directory.view(fleet)
    assert view is not None
    small = FleetSnapshot(fleet.backends[:3], fleet.taken_ms)
    assert router.router.directory.view(small) is None
