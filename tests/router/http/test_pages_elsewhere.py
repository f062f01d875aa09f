"""A router without keys hears programs and pages of its machine, and no page of the web."""

from __future__ import annotations

import pytest

from shared.keys import hashed
from shared.testing.upstream import Upstream
from tests.router.conftest import StartRouter

ELSEWHERE = [
    ({"Host": "evil.example"}, "foreign_host"),
    ({"Host": "127.0.0.1.evil.example:8080"}, "foreign_host"),
    ({"Host": "["}, "foreign_host"),
    ({"Host": "evil.example."}, "foreign_host"),
    ({"Host": "localhost.evil.example"}, "foreign_host"),
    ({"Origin": "http://router"}, "foreign_origin"),
    ({"Origin": "http://192.168.1.5"}, "foreign_origin"),
    ({"Origin": "http://evil.example"}, "foreign_origin"),
    ({"Origin": "https://localhost.evil.example"}, "foreign_origin"),
    ({"Origin": "null"}, "foreign_origin"),
    ({"Origin": "http://["}, "foreign_origin"),
]
NEAR = [
    {"Host": "localhost:8080"},
    {"Host": "[::1]:9"},
    {"Host": "app.localhost"},
    {"Host": "router"},
    {"Host": "pi.local:8080"},
    {"Host": "192.168.1.5:8080"},
    {"Origin": "http://localhost:3000"},
    {"Origin": "http://127.0.0.1"},
    {"Origin": "chrome-extension://abcdef"},
]


@pytest.mark.parametrize(("headers", "code"), ELSEWHERE)
async def test_pages_elsewhere_are_not_heard(
    start_router: StartRouter, edge: Upstream, headers: dict[str, str], code: str
) -> None:
    """No answer, no list of backends, and above all no backend of their own."""
    router = await start_router()
    await router.report(edge)
    async with router.ask(headers=headers) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (403, code)
    async with router.session.get(f"{router.url}/v1/models", headers=headers) as response:
        assert response.status == 403
    async with router.session.get(f"{router.url}/fleet/v1/backends", headers=headers) as response:
        assert response.status == 403
    async with router.send(b"{}", path="/fleet/v1/heartbeats", headers=headers) as response:
        assert response.status == 403
    assert edge.exchanges == []


@pytest.mark.parametrize("headers", NEAR)
async def test_this_machine_is_heard(start_router: StartRouter, edge: Upstream, headers: dict[str, str]) -> None:
    router = await start_router()
    await router.report(edge)
    async with router.ask(headers=headers) as response:
        assert response.status == 200


async def test_a_key_speaks_for_itself(start_router: StartRouter, edge: Upstream) -> None:
    """A public router has many names, and a page that knows a key was given it."""
    key = {"name": "all", "sha256": hashed("isk-all"), "scopes": ["inference", "fleet:report"]}
    router = await start_router(keys=[key])
    known = {"Authorization": "Bearer isk-all", "Host": "router.example", "Origin": "https://app.example"}
    async with router.session.get(f"{router.url}/v1/models", headers=known) as response:
        assert response.status == 200
