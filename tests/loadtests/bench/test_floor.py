"""The benchmark parts: the floor forwards bytes unchanged, the instant backend speaks the API, all of it ends."""

from __future__ import annotations

import asyncio

import aiohttp
import orjson
import psutil
import pytest
from aiohttp.test_utils import TestServer

from loadtests.bench import instant, proxy_floor
from loadtests.bench import router as router_bench
from loadtests.bench import self as generator
from loadtests.bench.process import started
from loadtests.bench.wire_backend import Answers, Connection
from loadtests.bench.wire_client import ask_for, watch_streams
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


async def _wire_backend(ready: Answers) -> tuple[asyncio.Server, str]:
    server = await asyncio.get_running_loop().create_server(lambda: Connection(ready), "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_the_wire_backend_answers_as_the_scripted_one_does() -> None:
    server, address = await _wire_backend(Answers(3, 0.0))
    async with server, aiohttp.ClientSession() as http:
        async with http.post(address + CHAT, data=b'{"stream":true}') as response:
            assert await response.read() == answers.stream(*[" token"] * 3).body
        async with http.post(address + CHAT, data=b"{}") as response:
            assert await response.read() == answers.completion(" token" * 3).body
        async with http.get(address + "/ops/capacity") as response:
            assert (await response.json())["models"][0]["state"] == "ready"
        load = await ask_for(address, CHAT, b"{}", clients=2, seconds=0.05)
        assert load.per_s > 0 and len(load.answer_ms) >= 2


async def test_lateness_is_measured_on_stamped_events() -> None:
    server, address = await _wire_backend(Answers(4, 5.0))
    async with server, TestServer(proxy_floor.build(address)) as floor:
        seen = await watch_streams(str(floor.make_url("")), CHAT, b'{"stream":true}', streams=5)
    assert seen.whole == 5 and len(seen.late_ms) == 20
    assert all(0 <= late_ms < 10_000 for late_ms in seen.late_ms)


async def test_a_wrong_status_fails_the_measurement() -> None:
    async with Upstream() as upstream:
        upstream.default = lambda _: answers.failure(500)
        with pytest.raises(RuntimeError, match="500"):
            await ask_for(upstream.url, CHAT, b"{}", clients=1, seconds=1.0)


def test_ratios_are_of_the_same_round() -> None:
    def run(per_s: float) -> router_bench.Sample:
        return router_bench.Sample(per_s, 1000 / per_s, 2000 / per_s, 1e6 / per_s)

    samples = {
        (mode, clients, way): [run(each * share) for each in (100.0, 400.0, 50.0)]
        for mode in ("whole", "stream")
        for clients in (1, 32)
        for way, share in (("direct", 2.0), ("proxy", 1.0), ("router", 0.5))
    }
    found = router_bench.ratios(samples)
    assert found["requests_ratio_1"] == found["streams_ratio_32"] == found["requests_cpu_ratio_32"] == 0.5
    assert found["p50_added_ms"] == 10.0
    ranges = router_bench.spread(samples)
    assert ranges["requests_ratio_32"] == (0.5, 0.5) and ranges["p50_added_ms"] == (2.5, 20.0)
    assert ranges.keys() == found.keys()
