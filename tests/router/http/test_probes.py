"""Readiness says whether the router takes work, also while its audit storage fails."""

from __future__ import annotations

from typing import Any, cast

import orjson
from aiohttp import web

from router.http.probes import Probes
from shared.http.lifecycle import Lifecycle


class _Audit:
    failing = False


async def test_a_router_whose_audit_fails_stays_ready_and_says_so() -> None:
    """Public requests are still served, so taking it out of service would refuse those too."""
    audit = _Audit()
    probes = Probes(Lifecycle(), cast("Any", audit))
    request = cast("web.Request", None)
    for failing, said in ((False, {"status": "ready"}), (True, {"status": "ready", "audit": "failing"})):
        audit.failing = failing
        answer = await probes.ready(request)
        assert (answer.status, orjson.loads(cast("bytes", answer.body))) == (200, said)
