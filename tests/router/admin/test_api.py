"""The admin API: who may see and change what, what a browser must prove, and what the live views are told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import orjson
import pytest

from router.admin.decisions import Decisions
from router.audit.query import Wanted
from router.http.signin import COOKIE, CSRF_HEADER
from shared.keys import generate, hashed
from shared.testing import answers
from shared.testing.upstream import Upstream
from tests.router.conftest import PERSONAL_TEXT, RunningRouter, StartRouter

ADMIN, READER, CALLER = generate(), generate(), generate()
KEYS = [
    {"name": "admin", "sha256": hashed(ADMIN), "scopes": ["admin", "inference", "fleet:report"]},
    {"name": "reader", "sha256": hashed(READER), "scopes": ["admin:read"]},
    {"name": "caller", "sha256": hashed(CALLER), "scopes": ["inference"]},
]
READS = ["live", "fleet", "decisions", "policy"]


async def call(
    router: RunningRouter, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any, dict[str, str]]:
    """One request to the admin API: status, JSON, and headers."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    data = None if body is None else orjson.dumps(body)
    if body is not None:
        sent["Content-Type"] = "application/json"
    async with router.session.request(method, f"{router.url}/admin/v1{path}", data=data, headers=sent) as answer:
        raw = await answer.read()
        return answer.status, orjson.loads(raw) if raw else None, dict(answer.headers)


async def sign_in(router: RunningRouter, key: str = ADMIN) -> tuple[dict[str, str], dict[str, Any]]:
    """Headers with which a browser that signed in sends what changes something, and what it was told."""
    status, told, headers = await call(router, "POST", "/session", {"key": key})
    assert status == 200
    router.session.cookie_jar.clear()
    cookie = headers["Set-Cookie"].partition(";")[0]
    return {"Cookie": cookie, CSRF_HEADER: told["csrf_token"]}, told


@pytest.mark.parametrize("path", READS)
async def test_every_view_needs_a_key_that_may_see_it(start_router: StartRouter, path: str) -> None:
    router = await start_router(keys=KEYS)
    assert (await call(router, "GET", f"/{path}"))[0] == 401
    assert (await call(router, "GET", f"/{path}", Authorization=f"Bearer {CALLER}"))[0] == 403
    for key in (READER, ADMIN):
        assert (await call(router, "GET", f"/{path}", Authorization=f"Bearer {key}"))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/backends/edge-1/drain", None),
        ("DELETE", "/backends/edge-1/drain", None),
        ("POST", "/invitations", {}),
        ("DELETE", "/devices/x", None),
        ("POST", "/decisions/x/feedback", {"class": "public"}),
    ],
)
async def test_who_may_only_see_changes_nothing(
    start_router: StartRouter, method: str, path: str, body: dict[str, str] | None
) -> None:
    router = await start_router(keys=KEYS)
    status, answer, _ = await call(router, method, path, body, Authorization=f"Bearer {READER}")
    assert (status, answer["error"]["code"]) == (403, "insufficient_scope")


async def test_a_cookie_is_out_of_reach_of_scripts_and_other_sites(start_router: StartRouter) -> None:
    router = await start_router(keys=KEYS)
    _, _, headers = await call(router, "POST", "/session", {"key": ADMIN}, X_Forwarded_Proto="https")
    cookie = headers["Set-Cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Secure"} <= {part.strip() for part in cookie.split(";")}
    assert ADMIN not in cookie
    assert hashed(ADMIN) not in cookie


async def test_what_changes_something_needs_the_token_beside_the_cookie(start_router: StartRouter) -> None:
    router = await start_router(keys=KEYS)
    headers, told = await sign_in(router)
    assert told["role"] == "admin"
    cookie = {"Cookie": headers["Cookie"]}
    for forged in ({}, {CSRF_HEADER: "0" * 64}, {CSRF_HEADER: "é"}):
        status, answer, _ = await call(router, "PUT", "/backends/edge-1/drain", **cookie, **forged)
        assert (status, answer["error"]["code"]) == (403, "csrf_token_missing")
    assert (await call(router, "GET", "/fleet", **cookie))[0] == 200
    assert (await call(router, "PUT", "/backends/edge-1/drain", **headers))[0] == 204


async def test_a_token_of_bytes_that_are_no_text_is_no_token(start_router: StartRouter) -> None:
    """AU-01 kind: never 500."""
    router = await start_router(keys=KEYS)
    headers, _ = await sign_in(router)
    host = router.url.removeprefix("http://")
    head = f"PUT /admin/v1/backends/edge-1/drain HTTP/1.1\r\nHost: {host}\r\nCookie: {headers['Cookie']}\r\n"
    reader, writer = await asyncio.open_connection(*host.split(":"))
    writer.write(head.encode() + CSRF_HEADER.encode() + b": \xff\xfe\r\nConnection: close\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 403 ")
    writer.close()


async def test_one_browsers_token_is_no_other_ones(start_router: StartRouter) -> None:
    router = await start_router(keys=KEYS)
    (first, _), (second, _) = await sign_in(router), await sign_in(router)
    mixed = {"Cookie": first["Cookie"], CSRF_HEADER: second[CSRF_HEADER]}
    assert (await call(router, "PUT", "/backends/edge-1/drain", **mixed))[0] == 403


async def test_signing_out_ends_that_cookie_and_no_other(start_router: StartRouter) -> None:
    router = await start_router(keys=KEYS)
    (first, _), (second, _) = await sign_in(router), await sign_in(router)
    assert (await call(router, "DELETE", "/session", Cookie=first["Cookie"]))[0] == 403
    assert (await call(router, "DELETE", "/session", **first))[0] == 204
    assert (await call(router, "GET", "/fleet", Cookie=first["Cookie"]))[0] == 401
    assert (await call(router, "GET", "/fleet", Cookie=second["Cookie"]))[0] == 200


async def test_a_cookie_that_was_changed_is_none(start_router: StartRouter) -> None:
    router = await start_router(keys=KEYS)
    headers, _ = await sign_in(router)
    name, _, value = headers["Cookie"].partition("=")
    changed = ("B" if value[0] == "A" else "A") + value[1:]
    for each in (changed, value[:-1], value + "AAAA", "", "é", "A" * 119, value[:30] + "." + value[31:]):
        status, _, _ = await call(router, "GET", "/fleet", Cookie=f"{name}={each}")
        assert status in (400, 401)


async def test_a_cookie_of_before_ends_with_its_key(start_router: StartRouter) -> None:
    router = await start_router(keys=KEYS)
    headers, _ = await sign_in(router)
    same_secret = await start_router(keys=KEYS)
    assert (await call(same_secret, "GET", "/fleet", Cookie=headers["Cookie"]))[0] == 200
    without = await start_router(keys=KEYS[1:])
    assert (await call(without, "GET", "/fleet", Cookie=headers["Cookie"]))[0] == 401


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"key": "isk-wrong"}, 401),
        ({"key": CALLER}, 403),
        ({"key": ""}, 401),
        ({"key": "a b"}, 401),
        ({"key": "\n"}, 401),
        ({"key": 7}, 400),
        ({}, 400),
        ({"key": ADMIN, "more": 1}, 400),
    ],
)
async def test_who_cannot_sign_in_gets_no_cookie(start_router: StartRouter, body: Any, status: int) -> None:
    router = await start_router(keys=KEYS)
    found, answer, headers = await call(router, "POST", "/session", body)
    assert found == status
    assert "Set-Cookie" not in headers
    assert "isk-" not in orjson.dumps(answer).decode()


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Host": "["},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:8080"},
    ],
)
async def test_a_router_without_keys_hears_no_other_page(start_router: StartRouter, headers: dict[str, str]) -> None:
    router = await start_router()
    for method, path in (("PUT", "/backends/edge-1/drain"), ("GET", "/decisions"), ("POST", "/invitations")):
        status, answer, _ = await call(router, method, path, {} if method == "POST" else None, **headers)
        assert status == 403
        assert answer["error"]["code"] in ("foreign_origin", "foreign_host")


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:9", "router.localhost"])
async def test_names_of_this_machine_are_its_own(start_router: StartRouter, host: str) -> None:
    router = await start_router()
    assert (await call(router, "GET", "/fleet", Host=host))[0] == 200


async def test_a_drained_backend_gets_nothing_new_until_it_is_used_again(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}])
    await router.report(edge)
    assert (await call(router, "PUT", "/backends/edge-1/drain"))[0] == 204
    async with router.ask() as answer:
        assert answer.headers["x-isthmus-tier"] == "cloud"
    async with router.ask(PERSONAL_TEXT) as answer:  # a drain never widens where data may go
        assert answer.status == 503
    _, facts, _ = await call(router, "GET", "/fleet")
    drained = {each["backend_id"]: each for each in facts["backends"]}["edge-1"]
    assert drained["state"] == "draining"
    assert drained["drained_since_unix_s"] > 0
    assert (await call(router, "DELETE", "/backends/edge-1/drain"))[0] == 204
    async with router.ask(PERSONAL_TEXT) as answer:
        assert answer.headers["x-isthmus-backend"] == "edge-1"


async def test_a_drain_outlives_the_router_and_reaches_another(start_router: StartRouter, edge: Upstream) -> None:
    first = await start_router()
    second = await start_router()
    await call(first, "PUT", "/backends/edge-1/drain")
    third = await start_router()
    await third.report(edge)
    _, facts, _ = await call(third, "GET", "/fleet")
    assert facts["backends"][0]["state"] == "draining"
    async with asyncio.timeout(10):
        while (await call(second, "GET", "/fleet"))[1]["drained"] != ["edge-1"]:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("name", ["..%2Fetc", "%20", "a" * 65, "%3Cscript%3E"])
async def test_a_name_that_no_backend_can_have_is_refused(start_router: StartRouter, name: str) -> None:
    router = await start_router()
    assert (await call(router, "PUT", f"/backends/{name}/drain"))[0] in (400, 404)


async def test_one_decision_is_found_at_once_and_later_from_the_log(start_router: StartRouter, edge: Upstream) -> None:
    router = await start_router()
    await router.report(edge)
    async with router.ask(PERSONAL_TEXT) as answer:
        decision_id = answer.headers["x-isthmus-decision-id"]
    _, found, _ = await call(router, "GET", f"/decisions/{decision_id}")
    assert found["same"] is True
    assert "It must stay on the edge." in found["words"]
    _, listed, _ = await call(router, "GET", "/decisions?class=personal&tier=edge&reason=privacy_requires_edge")
    assert [each["decision_id"] for each in listed["decisions"]] == [decision_id]
    assert (await call(router, "GET", "/decisions?class=public"))[1]["decisions"] == []
    await router.records(1)
    policy = router.router.policies.policy
    afresh = Decisions(router.audit_dir, lambda: policy)  # as after a restart: nothing in memory
    assert (await afresh.one(decision_id))["words"] == found["words"]
    assert [row["decision_id"] for row in await afresh.rows(Wanted(tier="edge"), None, 10)] == [decision_id]
    changed = Decisions(router.audit_dir, lambda: replace(policy, digest="sha256:another"))
    assert (await changed.one(decision_id))["same"] is True  # the policy of then is in the log
    assert "4111 1111" not in orjson.dumps(found).decode()


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=x", "limit=-1", "limit=²", "class=private"])
async def test_a_question_that_makes_no_sense_names_its_field(start_router: StartRouter, query: str) -> None:
    router = await start_router()
    status, answer, _ = await call(router, "GET", f"/decisions?{query}")
    assert (status, answer["error"]["param"]) == (400, query.partition("=")[0])


async def test_an_administrator_corrects_the_class_of_any_request(start_router: StartRouter, edge: Upstream) -> None:
    router = await start_router(keys=KEYS)
    signed, _ = await sign_in(router)
    async with router.ask(headers={"Authorization": f"Bearer {CALLER}"}) as answer:
        decision_id = answer.headers["x-isthmus-decision-id"]
    status, kept, _ = await call(router, "POST", f"/decisions/{decision_id}/feedback", {"class": "secret"}, **signed)
    assert (status, kept["key"], kept["said_by"], kept["class_said"]) == (200, "caller", "admin", "secret")


async def test_trying_a_text_sends_and_records_nothing(start_router: StartRouter, edge: Upstream) -> None:
    router = await start_router(keys=KEYS)
    body = {"model": answers.MODEL, "messages": [{"role": "user", "content": PERSONAL_TEXT}]}
    status, told, _ = await call(router, "POST", "/policy/try", body, Authorization=f"Bearer {READER}")
    assert (status, told["decision"]["class"]) == (200, "personal")
    assert edge.exchanges == []
    assert (await call(router, "GET", "/decisions", Authorization=f"Bearer {READER}"))[1]["decisions"] == []


async def test_the_stream_tells_of_decisions_and_of_heat(start_router: StartRouter, edge: Upstream) -> None:
    router = await start_router()
    await router.report(edge, temperature_c=40.0)
    async with router.session.get(f"{router.url}/admin/v1/events") as stream, asyncio.timeout(10):
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        async with router.ask():
            pass
        await router.report(edge, temperature_c=81.5, level="hot")
        seen, text = set(), b""
        while not {"live", "fleet", "decision"} <= seen or b'"temperature_c":81.5' not in text:
            text += await stream.content.readany()
            seen = {line[7:].decode() for line in text.split(b"\n") if line.startswith(b"event: ")}


async def test_the_stream_ends_with_its_sign_in(start_router: StartRouter) -> None:
    router = await start_router(keys=KEYS)
    signed, _ = await sign_in(router)
    async with router.session.get(f"{router.url}/admin/v1/events", headers={"Cookie": signed["Cookie"]}) as stream:
        await stream.content.readany()
        assert (await call(router, "DELETE", "/session", **signed))[0] == 204
        async with asyncio.timeout(10):
            rest = await stream.read()
    assert b"event: signed_out" in rest


async def test_pages_reach_nothing_but_this_router(start_router: StartRouter) -> None:
    router = await start_router(keys=KEYS)
    async with router.session.get(f"{router.url}/console") as page:
        assert page.url.path == "/console/"
        policy = page.headers["Content-Security-Policy"]
        html = await page.text()
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http:" not in html
    assert "https:" not in html
    for path in ("../app.py", "..%2f..%2fapp.py", "vendor", "nothing.js", "%2e%2e/api.py"):
        async with router.session.get(f"{router.url}/console/{path}") as answer:
            assert answer.status == 404
    async with router.session.get(f"{router.url}/console/main.js") as script:
        tag = script.headers["ETag"]
        assert script.headers["Content-Type"].startswith("text/javascript")
    async with router.session.get(f"{router.url}/console/main.js", headers={"If-None-Match": tag}) as again:
        assert again.status == 304
