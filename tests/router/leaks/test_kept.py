"""Canaries through the whole router, where policy keeps content on the edge: whatever of the router's parts fails, not
even a connection to the cloud is used, and nothing that stands beside a body travels with it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shared.testing import answers
from shared.testing.redis_server import RedisServer, binary
from shared.testing.upstream import Upstream
from tests.router.conftest import StartRouter, eventually
from tests.router.leaks.canaries import OTHER_PLACES, PLACES, Canary, assert_no_canary, canaries
from tests.router.leaks.watching import FOUND_CLASSES, full_audit_log, kept, watched
from tests.router.privacy.specimens import FOUND


async def test_pi_07_canaries_stay_on_the_edge_while_all_is_well(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    sent = canaries()
    assert len(sent) > 200 and {canary.place for canary in sent} == PLACES.keys() | OTHER_PLACES.keys()
    async with watched(start_router, edge, cloud) as router:
        await kept(router, cloud, sent, classes=FOUND_CLASSES, statuses={200})
    assert len(edge.exchanges) == len(sent)
    assert sorted(e.body for e in edge.exchanges) == sorted(c.raw for c in sent)


@pytest.mark.parametrize("fault", ["dead", "500", "429", "garbage"])
async def test_pv_01_canaries_stay_when_the_edge_fails(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, fault: str
) -> None:
    async with watched(start_router, edge, cloud) as router:
        if fault == "dead":
            await edge.refuse()
        else:
            faults = {"500": answers.failure(500), "429": answers.failure(429), "garbage": answers.empty()}
            edge.default = lambda exchange: faults[fault]
        await kept(router, cloud, canaries(step=4), classes=FOUND_CLASSES, statuses={503})


async def test_canaries_stay_when_the_audit_log_cannot_be_written(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    async with watched(start_router, edge, cloud) as router, full_audit_log(router):
        await kept(router, cloud, canaries(step=4), classes=FOUND_CLASSES, statuses={503})


_WIDE = "rules: [{name: wide, act: {action: any}}]\n"
_BAD_FILES = {
    "not YAML": "rules: [{name",
    "unknown word": _WIDE.replace("action", "acton"),
    "wider for personal": _WIDE + "defaults: {actions: {personal: any, secret: nothing}}\n",
    "empty": "",
    "gone": None,
}


@pytest.mark.parametrize("fault", _BAD_FILES)
async def test_canaries_stay_when_a_policy_file_goes_bad(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, tmp_path: Path, fault: str
) -> None:
    """A file that is changed for the worse changes nothing: the policy that was in force stays."""
    path, text = tmp_path / "policy.yaml", _BAD_FILES[fault]
    path.write_text("rules: [{name: near, match: {class: [personal, secret]}, act: {action: edge_only}}]\n")
    async with watched(start_router, edge, cloud, policy={"file": path, "reload_s": 0.02}) as router:
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
        await asyncio.sleep(0.1)
        await kept(router, cloud, canaries(step=8), classes=FOUND_CLASSES, statuses={200})


@pytest.mark.redis
@pytest.mark.parametrize("loss", ["frozen", "gone"])
async def test_canaries_stay_when_redis_is_lost(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, loss: str
) -> None:
    if binary() is None:
        pytest.skip("redis-server is not installed")
    server = RedisServer()
    server.start()
    try:
        state = {"kind": "redis", "url": server.url, "refresh_ms": 50}
        async with watched(start_router, edge, cloud, state=state) as router:
            await eventually(lambda: len(router.router.directory.snapshot().backends) == 2)
            (server.freeze if loss == "frozen" else server.stop)()
            await kept(router, cloud, canaries(step=4), classes=FOUND_CLASSES, statuses={200, 503})
    finally:
        server.thaw()
        server.stop()


async def test_canaries_in_headers_and_paths_stay(start_router: StartRouter, edge: Upstream, cloud: Upstream) -> None:
    """Of what stands beside a body, nothing that a caller wrote goes on."""
    hidden = [(text, covered) for _, text, covered in FOUND if text.isascii() and text.isprintable()][:40]
    async with watched(start_router, edge, cloud) as router:
        for text, covered in hidden:
            headers = {"User-Agent": text, "x-request-id": covered, "Referer": text, "x-other": text}
            session = {"x-session-id": covered} if " " not in covered and len(covered) <= 128 else {}
            async with router.ask("hello", headers={**headers, **session}) as response:
                await response.read()
    assert cloud.exchanges
    for exchange in cloud.exchanges:
        assert_no_canary(exchange, [Canary("header", covered, "", b"") for _, covered in hidden])
