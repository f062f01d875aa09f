"""Malformed requests of every kind, stream or not: a client error that names the field, and no backend hears of it."""

from __future__ import annotations

import asyncio
import gzip
import io
from collections.abc import AsyncIterator
from typing import Any

import orjson
import psutil
import pytest

from shared.testing.answers import MODEL
from shared.testing.upstream import Upstream
from tests.router.conftest import RunningRouter, StartRouter

USER = {"role": "user", "content": "hi"}
LIMIT_BYTES = 256 * 1024


def chat(**fields: Any) -> bytes:
    return orjson.dumps({"model": MODEL, "messages": [USER], **fields})


def messages(*given: Any) -> bytes:
    return orjson.dumps({"model": MODEL, "messages": list(given)})


def schema(value: Any) -> bytes:
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": value}})


RV_01 = {
    "no messages": (b'{"model":"m"}', "messages"),
    "empty list": (messages(), "messages"),
    "null": (b'{"model":"m","messages":null}', "messages"),
    "null message": (messages(None), "messages[0]"),
    "null content": (messages({"role": "user", "content": None}), "messages[0].content"),
    "no content": (messages({"role": "user"}), "messages[0].content"),
    "second without content": (messages(USER, {"role": "user"}), "messages[1].content"),
    "assistant without content or calls": (messages(USER, {"role": "assistant"}), "messages[1].content"),
    "assistant with null and empty calls": (
        messages(USER, {"role": "assistant", "content": None, "tool_calls": []}), "messages[1]"),
    "no role": (messages({"content": "hi"}), "messages[0].role"),
    "unknown role": (messages({"role": "wizard", "content": "hi"}), "messages[0].role"),
    "content is a number": (messages({"role": "user", "content": 7}), "messages[0].content"),
    "no parts": (messages({"role": "user", "content": []}), "messages[0].content"),
    "a null part": (messages({"role": "user", "content": [None]}), "messages[0].content[0]"),
    "a text part without text": (messages({"role": "user", "content": [{"type": "text"}]}), "messages[0].content[0]"),
    "a tool reply without its call": (messages(USER, {"role": "tool", "content": "4"}), "messages[1]"),
}  # fmt: skip

RV_03 = {
    "a word": (chat(logit_bias={"AI": -100}), "logit_bias"),
    "far beyond any vocabulary": (chat(logit_bias={"9" * 30: 5}), "logit_bias"),
    "too strong": (chat(logit_bias={"12": 1e9}), "logit_bias"),
    "a little too strong": (chat(logit_bias={"12": -100.5}), "logit_bias"),
    "null": (chat(logit_bias={"12": None}), "logit_bias"),
    "a list": (chat(logit_bias=[]), "logit_bias"),
    "a text": (chat(logit_bias="12"), "logit_bias"),
    "true": (chat(logit_bias={"12": True}), "logit_bias"),
    "negative": (chat(logit_bias={"-1": 1}), "logit_bias"),
    "a fraction": (chat(logit_bias={"1.5": 1}), "logit_bias"),
    "other digits": (chat(logit_bias={"١٢": 1}), "logit_bias"),
}

_DEEP = b'{"type":"object","properties":{"a":' * 200 + b"{}" + b"}}" * 200

RV_05 = {
    "misspelt type": (schema({"type": "strin"}), "response_format"),
    "a reference to itself": (schema({"$ref": "#"}), "response_format"),
    "a circle of references": (
        schema({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        "response_format"),
    "a reference to nowhere": (schema({"$ref": "#/$defs/none"}), "response_format"),
    "a reference to the network": (schema({"$ref": "http://example.com/s.json"}), "response_format"),
    "nested quantifiers": (schema({"type": "string", "pattern": "(a+)+$"}), "response_format"),
    "a broken pattern": (schema({"type": "string", "pattern": "["}), "response_format"),
    "no schema": (chat(response_format={"type": "json_schema"}), "response_format"),
    "a schema that is a list": (schema([]), "response_format"),
    "an unknown format": (chat(response_format={"type": "yaml"}), "response_format"),
    "a text": (chat(response_format="json"), "response_format"),
    "two hundred levels": (schema(None).replace(b"null", _DEEP), None),
}  # fmt: skip

RV_09 = {
    "stream as text": (chat(stream="true"), "stream"),
    "stream as number": (chat(stream=1), "stream"),
    "messages as object": (b'{"model":"m","messages":{}}', "messages"),
    "truncated": (chat()[:-3], None),
    "empty": (b"", None),
    "a space": (b" ", None),
    "null": (b"null", None),
    "a list": (b"[]", None),
    "a text": (b'"hi"', None),
    "utf-16": (chat().decode().encode("utf-16"), None),
    "latin-1": (chat().replace(b"hi", b"\xe9"), None),
    "duplicate model": (chat()[:-1] + b',"model":"other"}', None),
    "duplicate in a message": (chat().replace(b'"role":"user"', b'"role":"user","role":"system"'), None),
    "model as number": (chat(model=7), "model"),
    "no model": (orjson.dumps({"messages": [USER]}), "model"),
    "not a number": (chat()[:-1] + b',"temperature":NaN}', None),
    "infinite": (chat()[:-1] + b',"temperature":1e999}', None),
    "max_tokens as text": (chat(max_tokens="5"), "max_tokens"),
    "max_tokens as fraction": (chat(max_tokens=1.5), "max_tokens"),
    "max_tokens of nothing": (chat(max_tokens=0), "max_tokens"),
    "two documents": (chat() + chat(), None),
    "half a surrogate pair": (chat().replace(b"hi", b"\\ud800"), None),
}
KINDS = {"RV-01": RV_01, "RV-03": RV_03, "RV-05": RV_05, "RV-09": RV_09}
CASES = [(row, name) for row, cases in KINDS.items() for name in cases]


@pytest.fixture
async def router(start_router: StartRouter, edge: Upstream) -> RunningRouter:
    started = await start_router(limits={"body_bytes": LIMIT_BYTES})
    await started.report(edge)
    return started


@pytest.mark.parametrize("row,name", CASES, ids=[f"{row}-{name}" for row, name in CASES])
async def test_a_malformed_request_is_a_client_error(
    router: RunningRouter, edge: Upstream, row: str, name: str
) -> None:
    """RV-01, RV-03, RV-05, RV-09: the same whether a stream is asked for or not, and the router serves on."""
    raw, param = KINDS[row][name]
    answers = []
    for body in (raw, raw[:-1] + b',"stream":true}' if raw.endswith(b"}") and b'"stream"' not in raw else raw):
        async with asyncio.timeout(2):
            async with router.send(body) as response:
                error = (await response.json())["error"]
                assert response.status in (400, 422), error
                assert error["type"] == "invalid_request_error"
                assert (error["param"] or "").startswith(param or ""), error
                assert response.headers["Content-Type"].startswith("application/json")
                answers.append((response.status, error))
    assert answers[0] == answers[1]
    assert not edge.exchanges
    async with router.send(chat()) as response:
        assert response.status == 200


async def test_rv_01_a_tool_call_with_null_content_is_accepted(router: RunningRouter, edge: Upstream) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    async with router.send(messages(USER, said, {"role": "tool", "tool_call_id": "c1", "content": "4"})) as response:
        assert response.status == 200
    assert len(edge.exchanges) == 1


async def test_rv_03_a_healthy_stream_beside_a_bad_bias_completes(router: RunningRouter, edge: Upstream) -> None:
    async with router.ask(stream=True) as healthy:
        async with router.send(chat(logit_bias={"12": 1e9})) as bad:
            assert bad.status == 400
        assert (await healthy.read()).endswith(b"data: [DONE]\n\n")
    async with router.send(chat(logit_bias={"12": -100, "13": 100.0})) as good:
        assert good.status == 200


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "x-gzip"])
async def test_rv_07_a_compressed_body_is_not_unpacked(router: RunningRouter, encoding: str) -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    before = psutil.Process().memory_info().rss
    async with router.send(bomb, headers={"Content-Encoding": encoding}) as response:
        assert response.status in (413, 415)
    assert psutil.Process().memory_info().rss - before < 25_000_000


@pytest.mark.parametrize("opened", [b"[", b'{"a":'], ids=["lists", "objects"])
async def test_rv_07_a_hundred_thousand_brackets_are_400(router: RunningRouter, opened: bytes) -> None:
    async with router.send(opened * (LIMIT_BYTES // len(opened) - 10)) as response:
        assert response.status == 400
    async with router.send(b'{"model":"m","messages":' + opened * 40_000) as response:
        assert response.status == 400


@pytest.mark.parametrize("chunked", [False, True])
async def test_rv_07_fifty_megabytes_are_not_held(router: RunningRouter, chunked: bool) -> None:
    """413 at the limit, announced or not, and what is over it takes no memory."""

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(800):
            yield b" " * 65_536

    data: Any = parts() if chunked else io.BytesIO(b" " * 52_428_800)
    before = psutil.Process().memory_info().rss
    async with router.session.post(
        f"{router.url}/v1/chat/completions", data=data, headers={"Content-Type": "application/json"}
    ) as response:
        assert response.status == 413
    assert psutil.Process().memory_info().rss - before < 25_000_000


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/xml", "", "application/jsonp", "multipart/form-data"]
)
async def test_rv_09_another_content_type_is_415(router: RunningRouter, edge: Upstream, content_type: str) -> None:
    async with router.send(chat(), headers={"Content-Type": content_type}) as response:
        assert response.status == 415
        assert (await response.json())["error"]["type"] == "invalid_request_error"
    assert not edge.exchanges
