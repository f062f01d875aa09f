"""Canaries through the whole router: specimens in every position of a body, each part failing in turn, one cloud that
records. Not one byte of a canary may reach it, in a body, a header or a path, and where policy keeps content on the
edge not even a connection.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from router.audit.storage import AuditStorage
from router.privacy.classify import INLINE_BYTES
from router.privacy.model import Classification
from router.privacy.scanner import Scanner
from shared.openai.text import TextPosition
from shared.privacy import PrivacyClass
from shared.testing import answers
from shared.testing.answers import MODEL
from shared.testing.redis_server import RedisServer, binary
from shared.testing.upstream import Exchange, Upstream
from tests.router.conftest import RunningRouter, StartRouter, eventually
from tests.router.privacy.specimens import FOUND

MASKING = {"public": "any", "personal": "mask", "secret": "mask", "unknown": "edge_only"}
_AT_ONCE = 12


@dataclass(frozen=True)
class Canary:
    """What is hidden, the text around it, and a request that carries it."""

    place: str
    hidden: str
    path: str
    raw: bytes


def _user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _call(arguments: str) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"messages": [_user("x"), {"role": "assistant", "content": None, "tool_calls": [call]}]}


def _result(content: Any) -> dict[str, Any]:
    called = _call("{}")["messages"]
    return {"messages": [*called, {"role": "tool", "tool_call_id": "c", "content": content}]}


def _tool(**function: Any) -> dict[str, Any]:
    return {"messages": [_user("x")], "tools": [{"type": "function", "function": {"name": "f", **function}}]}


def _schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "messages": [_user("x")],
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
    }


PLACES: dict[str, Callable[[str], dict[str, Any]]] = {
    "system": lambda t: {"messages": [{"role": "system", "content": t}, _user("x")]},
    "developer": lambda t: {"messages": [{"role": "developer", "content": [{"type": "text", "text": t}]}, _user("x")]},
    "user": lambda t: {"messages": [_user(t)]},
    "user part": lambda t: {"messages": [_user([{"type": "text", "text": "see"}, {"type": "text", "text": t}])]},
    "earlier user": lambda t: {"messages": [_user(t), {"role": "assistant", "content": "ok"}, _user("go on")]},
    "assistant": lambda t: {"messages": [_user("x"), {"role": "assistant", "content": t}, _user("y")]},
    "refusal": lambda t: {"messages": [_user("x"), {"role": "assistant", "refusal": t}, _user("y")]},
    "arguments": lambda t: _call(json.dumps({"a": [{"b": t}]})),
    "arguments twice escaped": lambda t: _call(json.dumps({"a": json.dumps({"b": t})})),
    "tool result": _result,
    "tool result part": lambda t: _result([{"type": "text", "text": t}]),
    "function result": lambda t: {"messages": [_user("x"), {"role": "function", "name": "f", "content": t}]},
    "name": lambda t: {"messages": [{"role": "user", "content": "x", "name": t}]},
    "user field": lambda t: {"messages": [_user("x")], "user": t[:512]},
    "tool description": lambda t: _tool(description=t),
    "tool parameter": lambda t: _tool(parameters={"type": "object", "properties": {"p": {"enum": ["x", t]}}}),
    "schema text": lambda t: _schema({"type": "object", "description": t}),
    "schema default": lambda t: _schema({"type": "object", "properties": {"p": {"default": {"q": [t]}}}}),
    "stop": lambda t: {"messages": [_user("x")], "stop": ["\n", t]},
    "metadata": lambda t: {"messages": [_user("x")], "metadata": {"k": t}},
    "key": lambda t: {"messages": [_user("x")], "metadata": {t: "v"}},
    "unknown field": lambda t: {"messages": [_user("x")], "x_new": [[{"y": [1, None, t]}]]},
    "two parts": lambda t: {
        "messages": [_user([{"type": "text", "text": t[: len(t) // 2]}, {"type": "text", "text": t[len(t) // 2 :]}])]
    },
    "prompt": lambda t: {"prompt": t},
    "prompts": lambda t: {"prompt": ["x", t]},
    "suffix": lambda t: {"prompt": "x", "suffix": t},
}


def canaries(*, pad: bool = False, step: int = 1) -> list[Canary]:
    """Every `step`-th specimen, each in the next place; over all specimens every place comes up many times."""
    draw = random.Random(6)
    places = list(PLACES)
    made = []
    for index, (_, text, hidden) in enumerate(FOUND[::step]):
        place = places[index % len(places)]
        body: dict[str, Any] = {"model": MODEL, **PLACES[place](text)}
        if pad:
            body["pad"] = "lorem ipsum " * (INLINE_BYTES // 10)
        body["stream"] = draw.random() < 0.3
        names = list(body)
        draw.shuffle(names)
        path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
        raw = orjson.dumps({name: body[name] for name in names})
        # Half of the bodies say everything in escapes: what the JSON says counts, not its bytes.
        raw = raw if draw.random() < 0.5 else json.dumps(orjson.loads(raw), ensure_ascii=True).encode()
        made.append(Canary(place, hidden, path, raw))
    return made


def _strings(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield key
            yield from _strings(value)
    elif isinstance(node, list):
        for value in node:
            yield from _strings(value)
    else:
        yield str(node)


def _digits(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKC", text) if c.isdigit())


def assert_no_canary(exchange: Exchange, sent: Iterable[Canary]) -> None:
    """Nothing hidden in `sent` is in what the cloud got: as text, as digits, or in escapes."""
    texts = [exchange.path, *exchange.headers.values(), *_strings(orjson.loads(exchange.body))]
    everything = "\n".join(texts)
    digits = _digits("".join(texts))
    for canary in sent:
        assert canary.hidden not in everything, (canary.place, "text")
        if len(number := _digits(canary.hidden)) >= 9:
            assert number not in digits, (canary.place, "digits")


async def send_all(router: RunningRouter, sent: list[Canary]) -> list[tuple[int, str | None, str | None]]:
    """Status, class and tier of the answer to each canary."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(canary: Canary) -> tuple[int, str | None, str | None]:
        async with gate, router.send(canary.raw, path=canary.path) as response:
            await response.read()
            headers = response.headers
            return response.status, headers.get("x-isthmus-class"), headers.get("x-isthmus-tier")

    return await asyncio.gather(*map(one, sent))


@asynccontextmanager
async def watched(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, **settings: Any
) -> AsyncIterator[RunningRouter]:
    """A router whose cloud is ready, cheap and preferred: nothing but privacy keeps a request from it."""
    policy = {"mode": "prefer_cloud", "stale_after_ms": 600_000, **settings.pop("policy", {})}
    router = await start_router(
        clouds=[{"id": "cloud-1", "url": cloud.url}], retry={"floor_per_10s": 10_000}, policy=policy, **settings
    )
    await router.report(edge)
    await eventually(lambda: any(b.models for b in router.router.directory.snapshot().backends if b.zone == "cloud"))
    yield router
    await asyncio.sleep(0.05)


async def kept(router: RunningRouter, cloud: Upstream, sent: list[Canary], **expected: Any) -> None:
    """Send, and prove that no connection to the cloud was used, and that classes and statuses are the expected ones."""
    seen = await send_all(router, sent)
    assert {privacy_class for _, privacy_class, _ in seen} <= expected["classes"]
    assert {status for status, _, _ in seen} <= expected["statuses"]
    assert {tier for _, _, tier in seen} <= {"edge", None}
    assert cloud.inference_connections == []
    assert cloud.exchanges == []


FOUND_CLASSES = {"personal", "secret"}


async def test_pi_07_canaries_stay_on_the_edge_while_all_is_well(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    sent = canaries()
    assert len(sent) > 200 and {canary.place for canary in sent} == set(PLACES)
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


class _Scripted:
    """A scanner that does what a test says."""

    def __init__(self, scan: Callable[[Iterable[TextPosition], Callable[[], bool]], Any]) -> None:
        self._scan = scan

    def scan(self, texts: Iterable[TextPosition], *, expired: Callable[[], bool] | None = None) -> Classification:
        assert expired is not None
        return cast("Classification", self._scan(texts, expired))


def _raises(texts: Iterable[TextPosition], expired: Callable[[], bool]) -> Any:
    raise RuntimeError(next(iter(texts)).text)


_SCANNERS: dict[str, Callable[[Iterable[TextPosition], Callable[[], bool]], Any]] = {
    "raises": _raises,
    "answers nonsense": lambda texts, expired: {"class": "public"},
    "says public of a part": lambda texts, expired: Classification(PrivacyClass.PUBLIC, (), complete=False),
    "says public and truncated": lambda texts, expired: Classification(PrivacyClass.PUBLIC, (), True, "truncated"),
}


@pytest.mark.parametrize("fault", _SCANNERS)
@pytest.mark.parametrize("masking", [False, True])
async def test_pi_11_canaries_stay_when_the_scanner_fails(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, fault: str, masking: bool
) -> None:
    policy = {"actions": MASKING} if masking else {}
    scanner = _Scripted(_SCANNERS[fault])
    async with watched(start_router, edge, cloud, scanner=scanner, policy=policy) as router:
        await kept(router, cloud, canaries(step=8), classes={"unknown"}, statuses={200})


async def test_pi_11_canaries_stay_when_the_scan_runs_out_of_time(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, scanner: Scanner
) -> None:
    late = _Scripted(lambda texts, expired: scanner.scan(texts, expired=lambda: True))
    async with watched(start_router, edge, cloud, scanner=late) as router:
        await kept(router, cloud, canaries(step=4), classes={"unknown"}, statuses={200})


async def test_pi_11_canaries_stay_when_all_workers_are_taken(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, scanner: Scanner
) -> None:
    """Large bodies wait for a worker; those that find no room are unknown, those that are scanned are found."""
    blocked = threading.Event()

    def wait(texts: Iterable[TextPosition], expired: Callable[[], bool]) -> Classification:
        blocked.wait(20)
        return scanner.scan(texts)

    async with watched(
        start_router, edge, cloud, scanner=_Scripted(wait), scan={"workers": 1, "timeout_s": 20}
    ) as router:
        sent = canaries(pad=True, step=16)
        asked = asyncio.create_task(kept(router, cloud, sent, classes={*FOUND_CLASSES, "unknown"}, statuses={200}))
        await eventually(lambda: router.metric("isthmus_router_scanner_errors_total", cause="overflow") > 0)
        blocked.set()
        await asked


async def test_canaries_stay_when_the_audit_log_cannot_be_written(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []

    def full(self: AuditStorage, records: Any) -> None:
        refused.append(records)
        raise OSError(28, "no space left")

    async with watched(start_router, edge, cloud) as router:
        monkeypatch.setattr(AuditStorage, "append", full)
        async with router.ask("hello", headers={"x-isthmus-route": "edge"}) as response:
            assert response.status == 200
        await eventually(lambda: bool(refused))
        await kept(router, cloud, canaries(step=4), classes=FOUND_CLASSES, statuses={503})
        monkeypatch.undo()


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


async def test_pv_03_canaries_are_masked_before_they_travel(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    """Under `mask` the cloud is used, and gets no byte of a canary; what cannot be masked stays."""
    sent = canaries()
    async with watched(start_router, edge, cloud, policy={"actions": MASKING}) as router:
        seen = await send_all(router, sent)
    assert {status for status, _, _ in seen} == {200}
    assert {privacy_class for _, privacy_class, _ in seen} <= FOUND_CLASSES
    travelled = [canary for canary, (_, _, tier) in zip(sent, seen, strict=True) if tier == "cloud"]
    assert len(travelled) > len(sent) // 2
    assert "key" not in {canary.place for canary in travelled}
    for exchange in cloud.exchanges:
        assert_no_canary(exchange, sent)


@pytest.mark.parametrize("fault", ["breaks", "500", "dead"])
async def test_pv_03_canaries_are_masked_when_the_first_backend_fails(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, fault: str
) -> None:
    """Failover to the cloud carries the masked body, never the one that the edge got."""
    policy = {"mode": "prefer_edge", "actions": MASKING}
    sent = canaries(step=4)
    async with watched(start_router, edge, cloud, policy=policy) as router:
        faults: dict[str, Any] = {"500": answers.failure(500), "breaks": answers.hang_up()}
        if fault == "dead":
            await edge.refuse()
        else:
            edge.default = lambda exchange: faults[fault]
        await send_all(router, sent)
    assert cloud.exchanges
    for exchange in cloud.exchanges:
        assert_no_canary(exchange, sent)


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
