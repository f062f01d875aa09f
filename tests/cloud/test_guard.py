"""The guard before the engines: bad requests end here, good ones pass byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from cloud.guard import Guard, Message, Receive, Scope, Send, respond
from shared.errors import QueueFull
from shared.keys import ApiKey, hashed
from shared.keys import Scope as KeyScope

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


class Inner:
    """The application behind the guard: keeps the body that reaches it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.next: Message | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.bodies.append((await receive())["body"])
        self.next = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})


async def ask(
    raw: bytes | Iterable[bytes],
    *,
    path: str = "/v1/chat/completions",
    headers: dict[str, str] | None = None,
    limit: int = 4096,
    keys: Sequence[ApiKey] = (),
) -> tuple[int | None, dict[str, Any], Inner]:
    inner = Inner()
    chunks = [raw] if isinstance(raw, bytes) else list(raw)
    messages: list[Message] = [
        {"type": "http.request", "body": chunk, "more_body": index < len(chunks) - 1}
        for index, chunk in enumerate(chunks)
    ]
    messages.append({"type": "http.disconnect"})
    sent: list[Message] = []

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    wire = {"content-type": "application/json", **(headers or {})}
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in wire.items()],
    }
    await Guard(inner, body_limit_bytes=limit, sequences={"m": 4}, keys=keys)(scope, receive, send)
    status = sent[0]["status"] if sent else None
    error = json.loads(sent[1]["body"])["error"] if len(sent) > 1 else {}
    return status, error, inner


async def test_a_good_body_arrives_as_it_came_and_the_disconnect_after_it() -> None:
    raw = json.dumps(CHAT, indent=3).encode()
    status, _, inner = await ask([raw[:7], raw[7:]])
    assert status == 200
    assert inner.bodies == [raw]
    assert inner.next == {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"model": None}, "model"),
        ({"logit_bias": {"AI": -100}}, "logit_bias"),
        ({"stream": "true"}, "stream"),
        ({"n": 5}, "n"),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "strin"}}}}, None),
    ],
)
async def test_a_bad_body_is_answered_and_goes_no_further(change: dict[str, Any], param: str | None) -> None:
    """RV-01, RV-03, RV-05, RV-09 for clients that come around the router."""
    status, error, inner = await ask(json.dumps(CHAT | change).encode())
    assert status == 400
    assert error["type"] == "invalid_request_error"
    assert error["param"] == (param or "response_format")
    assert inner.bodies == []


async def test_a_missing_model_is_refused_and_an_unknown_one_not_found() -> None:
    status, error, _ = await ask(json.dumps({"messages": CHAT["messages"]}).encode())
    assert (status, error["param"]) == (400, "model")
    status, error, inner = await ask(json.dumps(CHAT | {"model": "CANARY"}).encode())
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert "CANARY" not in error["message"]
    assert inner.bodies == []


@pytest.mark.parametrize(
    ("body", "allowed"),
    [
        ({"prompt": "a", "n": 4}, True),
        ({"prompt": ["a", "b"], "n": 2}, True),
        ({"prompt": [1, 2, 3, 4, 5], "n": 1}, True),
        ({"prompt": ["a", "b"], "n": 3}, False),
        ({"prompt": [[1], [2], [3], [4], [5]]}, False),
        ({"prompt": "a", "best_of": 5}, False),
    ],
)
async def test_sequences_of_one_request_are_bounded(body: dict[str, Any], allowed: bool) -> None:
    status, error, _ = await ask(json.dumps({"model": "m", **body}).encode(), path="/v1/completions")
    assert (status == 200) is allowed
    if not allowed:
        assert error["param"] == "n"


async def test_body_limit_holds_with_and_without_announcement() -> None:
    """RV-07: at most the limit is held."""
    status, error, _ = await ask(b"{}", headers={"content-length": "5000"})
    assert (status, error["code"]) == (413, "payload_too_large")

    taken = 0

    def endless() -> Iterable[bytes]:
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield b"x" * 1000

    status, error, _ = await ask(endless())
    assert status == 413


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-encoding": "gzip"}, 415),
        ({"content-encoding": "identity"}, 200),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/json; charset=utf-16"}, 415),
        ({"content-type": "Application/JSON; charset=UTF-8"}, 200),
    ],
)
async def test_content_headers(headers: dict[str, str], status: int) -> None:
    assert (await ask(json.dumps(CHAT).encode(), headers=headers))[0] == status


async def test_a_client_that_leaves_while_sending_is_not_answered() -> None:
    inner = Inner()
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/completions",
        "headers": [(b"content-type", b"application/json")],
    }
    await Guard(inner, body_limit_bytes=10, sequences={})(scope, receive, send)
    assert sent == []
    assert inner.bodies == []


@pytest.mark.parametrize("final", [False, True])
async def test_a_refusal_says_when_to_come_again_or_that_it_is_of_no_use(final: bool) -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    error = QueueFull("full", retry_after_s=7)
    await respond(error.for_good() if final else error, send)
    headers = dict(sent[0]["headers"])
    told = headers.get(b"retry-after"), headers.get(b"x-should-retry")
    assert told == ((None, b"false") if final else (b"7", None))


async def test_other_routes_are_none_of_its_business() -> None:
    status, _, inner = await ask(b"anything", path="/v1/models")
    assert status == 200
    assert inner.bodies == [b"anything"]


KEYS = (
    ApiKey("asks", hashed("K"), frozenset({KeyScope.INFERENCE})),
    ApiKey("reports", hashed("R"), frozenset({KeyScope.FLEET_REPORT})),
)


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Bearer K", 200),
        ("bearer K", 200),
        ("BEARER   K", 200),
        (None, 401),
        ("Bearer", 401),
        ("Bearer ", 401),
        ("BearerK", 401),
        ("Basic K", 401),
        ("Bearer k", 401),
        ("Bearer K\u00e9", 401),
        ("Bearer R", 403),
    ],
)
async def test_where_keys_are_known_one_is_needed_before_the_body_is_read(header: str | None, status: int) -> None:
    """AU-01, RV-07."""
    headers = {} if header is None else {"authorization": header}
    found, answer, inner = await ask(json.dumps(CHAT).encode(), headers=headers, keys=KEYS)
    assert found == status
    assert bool(inner.bodies) == (status == 200)
    if status != 200:
        assert set(answer) == {"message", "type", "param", "code"}
        large = b'{"a":"' + b"x" * 100_000
        assert (await ask(large, headers=headers, keys=KEYS))[0] == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x-api-key": "K"}, 200),
        ({"X-Api-Key": "K", "authorization": "Bearer K"}, 200),
        ({"x-api-key": "R", "authorization": "Bearer K"}, 401),
        ({"x-api-key": "k"}, 401),
        ({"x-api-key": "R"}, 403),
    ],
)
async def test_au_01_a_key_may_come_as_anthropics_clients_send_it(headers: dict[str, str], status: int) -> None:
    raw = json.dumps(CHAT | {"max_tokens": 4}).encode()
    assert (await ask(raw, path="/v1/messages", headers=headers, keys=KEYS))[0] == status


ADMIN_KEYS = (*KEYS, ApiKey("rules", hashed("A"), frozenset({KeyScope.ADMIN})))


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [
        ("/cloud/v1/adapters/m:tone/load", "A", 200),
        ("/cloud/v1/adapters/m:tone/unload", "K", 403),
        ("/cloud/v1/adapters/m:tone/load", "R", 403),
        ("/cloud/v1/adapters/m:tone/load", "x", 401),
        ("/v1/models", "A", 403),
        ("/v1/chat/completions", "A", 403),
    ],
)
async def test_what_changes_the_tier_needs_a_key_of_scope_admin(path: str, key: str, status: int) -> None:
    found, _, inner = await ask(
        json.dumps(CHAT).encode(), path=path, headers={"authorization": f"Bearer {key}"}, keys=ADMIN_KEYS
    )
    assert found == status
    assert bool(inner.bodies) == (status == 200)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_page_of_another_origin_changes_nothing_where_no_key_is_asked_for(kind: str) -> None:
    """A browser sends these kinds anywhere without asking; JSON it does not."""
    status, _, inner = await ask(b"{}", path="/cloud/v1/adapters/m:tone/unload", headers={"content-type": kind})
    assert (status, inner.bodies) == (415, [])
