"""Every failure of a handler is one OpenAI-shaped answer, and its log line holds no content."""

from __future__ import annotations

import io

import aiohttp
import pytest
from aiohttp import web

from shared import logs
from shared.errors import Draining, InvalidRequest, IsthmusError, PayloadTooLarge, QueueFull, Unauthenticated
from shared.http.events import break_stream, open_stream
from shared.openai.envelope import error_event

from .conftest import Serve

_CANARY = "canary-91d2"


@pytest.mark.parametrize(
    ("error", "status", "headers"),
    [
        (InvalidRequest("bad", param="n"), 400, {}),
        (Unauthenticated("no"), 401, {"WWW-Authenticate": "Bearer"}),
        (PayloadTooLarge("big"), 413, {}),
        (QueueFull("full", retry_after_s=7), 503, {"Retry-After": "7"}),
        (Draining("bye"), 503, {"Retry-After": "1"}),
        (QueueFull("full", retry_after_s=0), 503, {"Retry-After": "1"}),
        (QueueFull("full", retry_after_s=7).for_good(), 503, {"x-should-retry": "false"}),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_an_error_of_ours_is_its_status_and_envelope(
    serve: Serve, client: aiohttp.ClientSession, error: IsthmusError, status: int, headers: dict[str, str]
) -> None:
    async def fail(_: web.Request) -> web.Response:
        raise error

    async with client.get(await serve(fail), headers={"x-request-id": "abc"}) as answer:
        assert answer.status == status
        assert answer.content_type == "application/json"
        assert (await answer.json())["error"] == {
            "message": error.message, "type": error.type, "param": error.param, "code": error.code
        }  # fmt: skip
        assert answer.headers["x-request-id"] == "abc"
        told = ("Retry-After", "x-should-retry", "WWW-Authenticate")
        assert {name: answer.headers[name] for name in told if name in answer.headers} == headers


async def test_lg_01_an_unexpected_error_tells_neither_client_nor_log_what_it_held(
    serve: Serve, client: aiohttp.ClientSession
) -> None:
    log = io.StringIO()
    logs.configure(level="debug", stream=log)

    async def fail(request: web.Request) -> web.Response:
        prompt = await request.text()
        raise ValueError(prompt)

    async with client.post(await serve(fail), data=_CANARY, headers={"Authorization": f"Bearer {_CANARY}"}) as answer:
        assert answer.status == 500
        body = await answer.text()
    assert _CANARY not in body
    assert _CANARY not in log.getvalue()
    assert '"exception":"ValueError"' in log.getvalue().replace('": "', '":"')


async def test_an_error_in_mid_stream_is_no_second_head(serve: Serve, client: aiohttp.ClientSession) -> None:
    """What follows the first byte must not be read as content: the connection ends."""
    logs.configure(stream=io.StringIO())

    async def fail(request: web.Request) -> web.StreamResponse:
        response = await open_stream(request, {})
        await response.write(b"data: {}\n\n")
        raise ValueError

    seen = b""
    with pytest.raises(aiohttp.ClientPayloadError):
        async with client.get(await serve(fail)) as answer:
            async for chunk in answer.content.iter_any():
                seen += chunk
    assert seen == b"data: {}\n\n"


async def test_a_broken_stream_ends_with_one_error_event(serve: Serve, client: aiohttp.ClientSession) -> None:
    async def fail(request: web.Request) -> web.StreamResponse:
        response = await open_stream(request, {"x-isthmus-tier": "edge"})
        await response.write(b"data: {}\n\n")
        await break_stream(response, error_event(IsthmusError("broke")))
        return response

    async with client.get(await serve(fail)) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["Cache-Control"] == "no-cache"
        assert answer.headers["X-Accel-Buffering"] == "no"
        assert answer.headers["x-isthmus-tier"] == "edge"
        body = await answer.read()
    assert body.startswith(b"data: {}\n\ndata: {")
    assert body.count(b'"error"') == 1
    assert b"[DONE]" not in body


async def test_the_next_request_survives_a_stream_that_broke(serve: Serve) -> None:
    """A connection that closes without having said so would take the client's next request with it."""
    peers: list[object] = []

    async def fail(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        peers.append(request.transport.get_extra_info("peername"))
        response = await open_stream(request, {})
        await break_stream(response, error_event(IsthmusError("broke")))
        return response

    url = await serve(fail)
    async with aiohttp.ClientSession() as pooling:
        for _ in range(3):
            async with pooling.post(url) as answer:
                assert b'"error"' in await answer.read()
    assert len(peers) == 3
    assert len(set(peers)) == 1


@pytest.mark.parametrize(("raised", "status"), [(web.HTTPNotFound, 404), (web.HTTPBadRequest, 400),
                                                (web.HTTPInternalServerError, 500)])  # fmt: skip
async def test_errors_of_the_library_have_the_same_shape(
    serve: Serve, client: aiohttp.ClientSession, raised: type[web.HTTPException], status: int
) -> None:
    async def fail(_: web.Request) -> web.Response:
        raise raised

    async with client.get(await serve(fail)) as answer:
        assert answer.status == status
        assert "error" in await answer.json()


@pytest.mark.parametrize("given", ["a b", "x" * 129, "é", ""])
async def test_a_request_id_that_is_no_token_is_replaced(
    serve: Serve, client: aiohttp.ClientSession, given: str
) -> None:
    async def ok(_: web.Request) -> web.Response:
        return web.Response()

    url = await serve(ok)
    async with client.get(url, headers={"x-request-id": given}) as answer:
        assert answer.headers["x-request-id"].startswith("req-")
    async with client.get(url, headers=[("x-request-id", "a"), ("x-request-id", "b")]) as answer:
        assert answer.headers["x-request-id"].startswith("req-")
