"""The scripted backend does on the wire what its script says, and records what came."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from shared.openai.sse import DONE
from shared.testing import answers
from shared.testing.answers import End
from shared.testing.clock import ManualClock
from shared.testing.upstream import Upstream

CHAT = "/v1/chat/completions"
BODY = b'{"model":"m","stream":true,"messages":[]}'


async def _read(url: str, body: bytes = BODY) -> tuple[int, bytes]:
    async with aiohttp.ClientSession() as session, session.post(url + CHAT, data=body) as response:
        return response.status, await response.read()


async def test_scripted_answers_come_in_order_then_the_default() -> None:
    async with Upstream() as upstream:
        upstream.script(answers.failure(429, "slow_down", {"Retry-After": "7"}), answers.stream("A", "B"))
        assert (await _read(upstream.url))[0] == 429
        assert (await _read(upstream.url)) == (200, answers.stream("A", "B").body)
        assert b"Paris." in (await _read(upstream.url, b'{"model":"m"}'))[1]
        assert [e.body for e in upstream.exchanges] == [BODY, BODY, b'{"model":"m"}']
        assert [e.finished for e in upstream.exchanges] == [True, True, True]
        assert upstream.exchanges[1].tokens_sent == 2


async def test_one_byte_a_write_keeps_the_bytes_and_splits_them() -> None:
    answer = answers.byte_by_byte(answers.stream("杭州🦀é"))
    async with Upstream() as upstream, aiohttp.ClientSession() as session:
        upstream.script(answer)
        async with session.post(upstream.url + CHAT, data=BODY) as response:
            pieces = [piece async for piece, _ in response.content.iter_chunks()]
    assert b"".join(pieces) == answers.stream("杭州🦀é").body
    assert all(len(write.data) == 1 for write in answer.writes)
    assert len(pieces) > 50


async def test_a_cut_may_fall_inside_a_character() -> None:
    whole = answers.stream("🦀")
    at = whole.body.index("🦀".encode()) + 2
    cut = answers.cut_at(whole, at)
    assert [write.data for write in cut.writes] == [whole.body[:at], whole.body[at:]]
    async with Upstream() as upstream:
        upstream.script(cut)
        assert (await _read(upstream.url))[1] == whole.body


@pytest.mark.parametrize(
    ("end", "error"),
    [(End.RESET, (aiohttp.ClientOSError, aiohttp.ClientPayloadError)), (End.CUT, aiohttp.ClientPayloadError)],
)
async def test_a_broken_stream_gives_its_chunks_and_then_breaks(
    end: End, error: type[Exception] | tuple[type[Exception], ...]
) -> None:
    seen = b""
    async with Upstream() as upstream, aiohttp.ClientSession() as session:
        upstream.script(answers.broken_stream("A", "B", gap_s=0.01, end=end))
        with pytest.raises(error):
            async with session.post(upstream.url + CHAT, data=BODY) as response:
                async for piece in response.content.iter_any():
                    seen += piece
    assert b'"A"' in seen
    assert b'finish_reason":"stop' not in seen


@pytest.mark.parametrize("end", [End.RESET, End.CUT])
async def test_hanging_up_happens_before_any_status(end: End) -> None:
    async with Upstream() as upstream:
        upstream.script(answers.hang_up(end))
        with pytest.raises(aiohttp.ClientConnectionError):
            await _read(upstream.url)
        assert upstream.exchanges[0].body == BODY


async def test_an_error_event_may_end_with_or_without_done() -> None:
    async with Upstream() as upstream:
        upstream.script(
            answers.broken_stream("A", error=True, end=End.CLEAN),
            answers.broken_stream("A", error=True, done=True, end=End.CLEAN),
            answers.stream("A", done=False),
        )
        bodies = [(await _read(upstream.url))[1] for _ in range(3)]
    assert bodies[0].endswith(answers.ERROR_EVENT)
    assert bodies[1].endswith(answers.ERROR_EVENT + DONE)
    assert DONE not in bodies[2]


async def test_an_empty_answer_has_no_byte() -> None:
    async with Upstream() as upstream:
        upstream.script(answers.empty())
        assert await _read(upstream.url) == (200, b"")


@pytest.mark.parametrize("headers_sent", [False, True])
async def test_a_stall_lasts_until_the_client_leaves_and_tells_when(headers_sent: bool) -> None:
    async with Upstream() as upstream:
        upstream.script(answers.silence(headers_sent=headers_sent))
        request = asyncio.create_task(_read(upstream.url))
        exchange = (await upstream.wait_exchanges(1))[0]
        assert exchange.left_s is None
        request.cancel()
        await exchange.wait_ended()
        assert exchange.left_s is not None
        assert not exchange.finished


async def test_tokens_stop_being_counted_when_the_client_leaves() -> None:
    clock = ManualClock()
    async with Upstream(sleep=clock.sleep) as upstream, aiohttp.ClientSession() as session:
        upstream.script(answers.stream(*"abcdefghij", gap_s=1.0))
        async with session.post(upstream.url + CHAT, data=BODY) as response:
            await response.content.readuntil(b"\n\n")
            for _ in range(3):
                await clock.advance(1.0)
                await response.content.readuntil(b"\n\n")
            response.close()
        await upstream.exchanges[0].wait_ended()
        assert upstream.exchanges[0].tokens_sent == 3


async def test_headers_wait_on_the_injected_clock() -> None:
    clock = ManualClock()
    async with Upstream(sleep=clock.sleep) as upstream:
        upstream.script(answers.completion(after_s=30))
        request = asyncio.create_task(_read(upstream.url))
        await upstream.wait_exchanges(1)
        assert not request.done()
        await clock.advance(30)
        assert (await request)[0] == 200


async def test_connections_are_counted_even_when_nothing_is_asked() -> None:
    async with Upstream() as upstream:
        port = int(upstream.url.rsplit(":", 1)[1])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(5):
            while not upstream.connections:
                await asyncio.sleep(0)
        writer.close()
        await writer.wait_closed()
        assert len(upstream.inference_connections) == 1


async def test_probes_and_capacity_are_control_connections() -> None:
    async with Upstream() as upstream:
        async with aiohttp.ClientSession() as session:
            for path in ("/healthz", "/readyz", "/v1/models", "/ops/capacity"):
                async with session.get(upstream.url + path) as response:
                    assert response.status == 200
            async with session.get(upstream.url + "/ops/capacity") as response:
                models = (await response.json())["models"]
            async with session.get(upstream.url + "/nothing") as response:
                assert response.status == 404
        assert models[0]["model_id"] == answers.MODEL
        assert upstream.connections
        assert upstream.inference_connections == []


async def test_refusing_resets_what_is_open_and_can_be_undone() -> None:
    async with Upstream() as upstream:
        upstream.script(answers.broken_stream("A", end=End.STALL))
        open_stream = asyncio.create_task(_read(upstream.url))
        await upstream.wait_exchanges(1)
        await upstream.refuse()
        with pytest.raises(aiohttp.ClientError):
            await open_stream
        with pytest.raises(aiohttp.ClientConnectorError):
            await _read(upstream.url)
        await upstream.accept()
        assert (await _read(upstream.url))[0] == 200


async def test_forgetting_leaves_no_connection_and_no_record() -> None:
    async with Upstream() as upstream, aiohttp.ClientSession() as session:
        for _ in range(2):
            async with session.post(upstream.url + CHAT, data=BODY) as response:
                await response.read()
            assert len(upstream.exchanges) == len(upstream.inference_connections) == 1, "one new connection each time"
            upstream.forget()
            assert upstream.exchanges == upstream.connections == []
            await asyncio.sleep(0.05)  # the reset reaches the client's pool
