"""What the router refuses before anything is classified or sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from shared.keys import Scope, hashed
from shared.testing.answers import MODEL
from shared.testing.upstream import Upstream
from tests.router.conftest import RunningRouter, StartRouter

KEY = "isk-right"
GOOD = b'{"model":"%s","messages":[{"role":"user","content":"hi"}]}' % MODEL.encode()


@pytest.fixture
async def open_router(start_router: StartRouter, edge: Upstream) -> AsyncIterator[RunningRouter]:
    router = await start_router(limits={"body_bytes": 4096})
    await router.report(edge)
    yield router


@pytest.fixture
async def locked(start_router: StartRouter) -> RunningRouter:
    keys = [
        {"name": "app", "sha256": hashed(KEY), "scopes": [Scope.INFERENCE]},
        {"name": "pi", "sha256": hashed("isk-pi"), "scopes": [Scope.FLEET_REPORT]},
    ]
    return await start_router(keys=keys, limits={"body_bytes": 4096})


BAD_BODIES = {
    "no messages": (b'{"model":"m"}', 400, "messages"),
    "null content": (b'{"model":"m","messages":[{"role":"user","content":null}]}', 400, "messages[0].content"),
    "stream as text": (GOOD[:-1] + b',"stream":"true"}', 400, "stream"),
    "bias": (GOOD[:-1] + b',"logit_bias":{"AI":-100}}', 400, "logit_bias"),
    "schema": (
        GOOD[:-1] + b',"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"strin"}}}}',
        400, "response_format",
    ),
    "truncated": (GOOD[:-5], 400, None),
    "empty": (b"", 400, None),
    "utf-16": (GOOD.decode().encode("utf-16"), 400, None),
    "duplicate key": (GOOD[:-1] + b',"model":"other"}', 400, None),
    "nested": (b'{"a":' + b"[" * 1000 + b"]" * 1000 + b"}", 400, None),
    "nul": (GOOD.replace(b"hi", b"h\\u0000i"), 400, None),
    "too large": (GOOD.replace(b"hi", b"x" * 5000), 413, None),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_BODIES)
async def test_bad_bodies_are_refused(open_router: RunningRouter, edge: Upstream, case: str) -> None:
    """RV-01, RV-03, RV-05, RV-07, RV-09: 4xx in the OpenAI envelope, naming the field, before any backend call."""
    raw, status, param = BAD_BODIES[case]
    async with open_router.send(raw) as response:
        error = (await response.json())["error"]
        assert response.status == status
        assert error["type"] == "invalid_request_error" and error["param"] == param
        assert response.headers["x-isthmus-decision-id"]
    assert not edge.exchanges
    [record] = await open_router.records(1)
    assert record["status"] == status and record["outcome"] == "client_error"
    async with open_router.send(GOOD) as response:
        assert response.status == 200


@pytest.mark.parametrize(
    "headers,status",
    [({"Content-Type": "text/plain"}, 415), ({"Content-Encoding": "gzip"}, 415),
     ({"x-isthmus-route": "moon"}, 400), ({"x-isthmus-privacy": "unknown"}, 400), ({"x-session-id": "a b"}, 400),
     ({"x-isthmus-rout": "cloud"}, 400)],
)  # fmt: skip
async def test_bad_headers_are_refused(open_router: RunningRouter, headers: dict[str, str], status: int) -> None:
    async with open_router.send(GOOD, headers=headers) as response:
        body = await response.text()
        assert response.status == status
        assert "moon" not in body and "a b" not in body


@pytest.mark.parametrize(
    "name,value", [("x-isthmus-route", "edge"), ("x-isthmus-privacy", "public"), ("x-session-id", "s")]
)
async def test_repeated_headers_are_refused(open_router: RunningRouter, name: str, value: str) -> None:
    headers = [("Content-Type", "application/json"), (name, value), (name, value)]
    async with open_router.session.post(
        f"{open_router.url}/v1/chat/completions", data=GOOD, headers=headers
    ) as response:
        assert response.status == 400
        assert (await response.json())["error"]["param"] == name


@pytest.mark.parametrize("authorization", [f"bearer {KEY}", f"BEARER   {KEY}"])
async def test_the_schemes_case_does_not_matter(locked: RunningRouter, authorization: str) -> None:
    """AU-01."""
    async with locked.send(GOOD, headers={"Authorization": authorization}) as response:
        assert response.status == 503


@pytest.mark.parametrize(
    "authorization",
    [None, "Bearer", "Bearer ", f"Bearer{KEY}", f"Basic {KEY}", f"Bearer {KEY.upper()}", f"Bearer {KEY} x"],
)
async def test_malformed_or_unknown_keys_are_refused(locked: RunningRouter, authorization: str | None) -> None:
    """AU-01, LG-03: 401 with a challenge, and one record."""
    headers = {} if authorization is None else {"Authorization": authorization}
    async with locked.send(GOOD, headers=headers) as response:
        assert response.status == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
    [record] = await locked.records(1)
    assert record["status"] == 401 and record["body"] is None


async def test_a_body_without_a_key_is_not_read(locked: RunningRouter) -> None:
    """RV-07: 401 comes while a chunked body of unknown length is still being sent."""
    host, port = locked.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n1000\r\n" + b"[" * 4096 + b"\r\n"
        )
        await writer.drain()
        async with asyncio.timeout(5):
            assert (await reader.readline()).startswith(b"HTTP/1.1 401")
    finally:
        writer.close()


async def test_a_chunked_body_stops_at_the_limit(open_router: RunningRouter) -> None:
    """RV-07: 413 as soon as the limit is passed, announced or not."""

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 1024

    async with open_router.session.post(
        f"{open_router.url}/v1/chat/completions", data=endless(), headers={"Content-Type": "application/json"}
    ) as response:
        assert response.status == 413


async def test_keys_open_only_what_their_scopes_say(locked: RunningRouter) -> None:
    for path, key, status in (
        ("/healthz", None, 200),
        ("/readyz", None, 200),
        ("/metrics", None, 401),
        ("/metrics", KEY, 200),
        ("/v1/models", KEY, 200),
        ("/v1/models", "isk-pi", 403),
        ("/fleet/v1/backends", KEY, 403),
    ):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with locked.session.get(locked.url + path, headers=headers) as response:
            assert response.status == status, path
    async with locked.send(b"{}", path="/fleet/v1/heartbeats", headers={"Authorization": f"Bearer {KEY}"}) as response:
        assert response.status == 403


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/embeddings", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
    ],
)
async def test_another_method_is_405_and_says_which_ones_there_are(
    open_router: RunningRouter, method: str, path: str, allowed: str
) -> None:
    async with open_router.session.request(method, open_router.url + path) as response:
        assert (response.status, response.headers["Allow"]) == (405, allowed)
        assert (await response.json())["error"]["code"] == "method_not_allowed"


async def test_an_unknown_route_is_404_in_the_envelope(open_router: RunningRouter) -> None:
    async with open_router.send(GOOD, path="/v1/no-such-route") as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "unknown_route"
