"""The benchmark parts: the floor forwards bytes unchanged, the instant backend speaks the API, all of it ends."""

from __future__ import annotations

import aiohttp
import orjson
import psutil
import pytest
from aiohttp.test_utils import TestServer

from loadtests.bench import instant, proxy_floor
from loadtests.bench import self as generator
from loadtests.bench.process import started
from shared.testing import answers
from shared.testing.answers import Answer
from shared.testing.upstream import Upstream

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    "answer", [answers.byte_by_byte(answers.stream("杭州🦀é")), answers.completion(), answers.failure(429)]
)
async def test_the_floor_forwards_status_and_bytes_unchanged(answer: Answer) -> None:
    async with Upstream() as upstream, TestServer(proxy_floor.build(upstream.url)) as floor:
        upstream.script(answer)
        async with aiohttp.ClientSession() as http, http.post(floor.make_url(CHAT), data=b'{"a": 1}') as response:
            assert response.status == answer.status
            assert await response.read() == answer.body
        assert upstream.exchanges[0].body == b'{"a": 1}'
        assert upstream.exchanges[0].path == CHAT


async def test_the_instant_backend_streams_the_tokens_asked_for() -> None:
    async with TestServer(instant.build(tokens=3, first_ms=0)) as server, aiohttp.ClientSession() as http:
        async with http.post(server.make_url(CHAT), data=b'{"stream":true}') as response:
            assert (await response.read()) == answers.stream(*[" token"] * 3).body
        async with http.post(server.make_url(CHAT), data=b"{}") as response:
            assert (await response.json())["object"] == "chat.completion"
        async with http.get(server.make_url("/ops/capacity")) as response:
            assert (await response.json())["models"][0]["state"] == "ready"


def test_a_started_part_ends_with_the_block() -> None:
    before = {child.pid for child in psutil.Process().children()}
    with started("loadtests.bench.instant") as address:
        assert address.startswith("http://127.0.0.1:")
        assert {child.pid for child in psutil.Process().children()} - before
    assert {child.pid for child in psutil.Process().children()} - before == set()


def test_the_generator_measures_itself() -> None:
    result = generator.measure(users=1, duration_s=2, first_ms=50)
    assert result["failed"] == 0
    assert result["answers_per_s"] > 0
    assert 0 <= result["ttft_error_ms"]["p50"] < 1000
    assert orjson.dumps(result)
