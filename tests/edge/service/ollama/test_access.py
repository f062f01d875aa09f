"""Who may use Ollama's routes: keys, content types, and pages in a browser."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from shared import keys
from tests.edge.service.fakes import EngineServer, FakeEngine
from tests.edge.service.harness import Running, running_agent
from tests.edge.service.ollama.asking import CHAT, post


async def test_bodies_need_no_content_type_unless_a_page_sends_them(running: Running) -> None:
    """curl -d says it is a form; a page in a browser must ask before it may send JSON to another origin."""
    url, raw = f"{running.url}/api/chat", orjson.dumps(CHAT | {"stream": False})
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    async with running.session.post(url, data=raw, headers=form) as response:
        assert response.status == 200
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        page = {"Content-Type": kind, "Origin": "http://localhost:3000"}
        async with running.session.post(url, data=raw, headers=page) as response:
            assert response.status == 415
            assert isinstance((await response.json())["error"], str)
    async with running.session.post(f"{running.url}/v1/chat/completions", data=raw, headers=form) as response:
        assert response.status == 415


@pytest.mark.parametrize("stream", [True, False])
async def test_a_page_of_this_device_may_read_the_answer(running: Running, stream: bool) -> None:
    """What a front end in a browser does: ask first, then send JSON."""
    url, page = f"{running.url}/api/chat", {"Origin": "http://localhost:3000"}
    wish = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type, authorization"}
    async with running.session.options(url, headers=page | wish) as response:
        assert response.status == 204
        assert response.headers["Access-Control-Allow-Origin"] == page["Origin"]
        assert response.headers["Access-Control-Allow-Headers"] == "content-type, authorization"
        assert "POST" in response.headers["Access-Control-Allow-Methods"]
    async with running.session.post(url, json=CHAT | {"stream": stream}, headers=page) as response:
        assert response.status == 200
        assert response.headers["Access-Control-Allow-Origin"] == page["Origin"]
        await response.read()
    async with running.session.post(url, json={}, headers=page) as response:  # the page sees why, too
        assert (response.status, response.headers["Access-Control-Allow-Origin"]) == (400, page["Origin"])


@pytest.mark.parametrize(
    "origin", ["https://elsewhere.example", "http://localhost.elsewhere.example", "null", "http://["]
)
async def test_a_page_elsewhere_is_refused(running: Running, server: EngineServer, origin: str) -> None:
    page = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    for method in ("POST", "OPTIONS"):
        async with running.session.request(method, f"{running.url}/api/chat", json=CHAT, headers=page) as response:
            assert response.status == 403
            assert "Access-Control-Allow-Origin" not in response.headers
    assert not server.exchanges


@pytest.mark.parametrize("origin", [b"app://\xff", b"tauri://\xc3\xa9"])
async def test_a_page_whose_name_is_no_plain_text_is_elsewhere(
    running: Running, server: EngineServer, origin: bytes
) -> None:
    """An answer has to say the name again."""
    host = running.url.removeprefix("http://")
    for method in (b"OPTIONS", b"GET"):
        reader, writer = await asyncio.open_connection(*host.split(":"))
        wish = b"Access-Control-Request-Method: GET\r\nConnection: close\r\n\r\n"
        writer.write(method + b" /api/tags HTTP/1.1\r\nHost: x\r\nOrigin: " + origin + b"\r\n" + wish)
        assert (await reader.read()).startswith(b"HTTP/1.1 403 ")
        writer.close()
    assert not server.exchanges


async def test_pages_are_no_matter_of_openais_api(running: Running) -> None:
    async with running.chat() as response:
        assert "Access-Control-Allow-Origin" not in response.headers
    page = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"}
    async with running.session.options(f"{running.url}/v1/chat/completions", headers=page) as response:
        assert response.status == 405
        assert "Access-Control-Allow-Origin" not in response.headers


async def test_a_page_needs_the_key_as_well(engine: FakeEngine) -> None:
    known = [{"name": "user", "sha256": keys.hashed("isk-user")}]
    async with running_agent(engine, keys=known) as running:
        page = {"Origin": "http://127.0.0.1:3000"}
        for headers, status in ((page, 401), (page | {"Authorization": "Bearer isk-user"}, 200)):
            async with post(running, "/api/chat", CHAT, headers=headers) as response:
                assert response.status == status


async def test_keys_guard_these_routes_too(engine: FakeEngine) -> None:
    known = [
        {"name": "user", "sha256": keys.hashed("isk-user")},
        {"name": "reporter", "sha256": keys.hashed("isk-reporter"), "scopes": ["fleet:report"]},
    ]
    async with running_agent(engine, keys=known) as running:
        for key, status in ((None, 401), ("isk-nobody", 401), ("isk-reporter", 403), ("isk-user", 200)):
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            async with post(running, "/api/chat", CHAT, headers=headers) as response:
                assert response.status == status
                if status != 200:
                    assert isinstance((await response.json())["error"], str)
            for route in ("/", "/api/tags", "/api/version", "/api/ps"):
                async with running.session.get(running.url + route, headers=headers) as response:
                    assert response.status == status
