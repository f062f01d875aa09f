"""Streams through the whole router: bytes unchanged, whole or honestly broken."""

from __future__ import annotations

import asyncio
import hashlib

import orjson
import pytest

from shared.openai.sse import DONE
from shared.testing import answers
from shared.testing.answers import Answer, End
from shared.testing.upstream import Upstream
from tests.router.conftest import StartRouter, eventually

TEXTS = ("杭州", "🦀", "é", " fin")


@pytest.mark.parametrize("cut", ["byte_by_byte", "inside_the_emoji", "whole"])
async def test_bytes_arrive_as_they_were_sent(start_router: StartRouter, edge: Upstream, cut: str) -> None:
    """SSE-01: a character cut between two network chunks stays whole."""
    router = await start_router()
    await router.report(edge)
    answer = answers.stream(*TEXTS)
    inside = answer.body.index("🦀".encode()) + 2
    edge.script({"byte_by_byte": answers.byte_by_byte(answer), "inside_the_emoji": answers.cut_at(answer, inside),
                 "whole": answer}[cut])  # fmt: skip
    async with router.ask(stream=True) as response:
        received = await response.read()
    assert hashlib.sha256(received).digest() == hashlib.sha256(answer.body).digest()


async def test_the_stream_is_not_held_back_by_proxies(start_router: StartRouter, edge: Upstream) -> None:
    """SSE-09: headers forbid buffering and caching."""
    router = await start_router()
    await router.report(edge)
    async with router.ask(stream=True) as response:
        await response.read()
        assert response.headers["X-Accel-Buffering"] == "no"
        assert response.headers["Cache-Control"] == "no-cache"
        assert response.headers["Content-Type"].startswith("text/event-stream")


FAULTS: dict[str, Answer] = {
    "reset": answers.broken_stream("Paris", " is", end=End.RESET),
    "closed": answers.broken_stream("Paris", " is", end=End.CUT),
    "clean end of transport": answers.broken_stream("Paris", " is", end=End.CLEAN),
    "error event": answers.broken_stream("Paris", " is", error=True, end=End.CLEAN),
    "error event, then done": answers.broken_stream("Paris", " is", error=True, done=True, end=End.CLEAN),
    "done without a finish reason": answers.broken_stream("Paris", " is", done=True, end=End.CLEAN),
    "not json": Answer(
        headers=answers.EVENT_STREAM,
        writes=(*answers.broken_stream("Paris", " is").writes, answers.Write(b"data: {oops\n\n")),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_stream_that_breaks_after_content_says_so(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, fault: str
) -> None:
    """SSE-05, FO-01: what was sent stands once, then one error event, no marker, and no other backend is asked."""
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}])
    await router.report(edge)
    edge.script(FAULTS[fault])
    async with router.ask(stream=True) as response:
        received = await response.read()
    sent = b"".join(w.data for w in FAULTS[fault].writes[:3])
    assert received.startswith(sent)
    rest = received[len(sent) :]
    assert rest.startswith(b"data: ") and rest.endswith(b"\n\n") and rest.count(b"data:") == 1
    error = orjson.loads(rest[6:])["error"]
    assert error["code"] == "stream_broken" and error["type"] == "backend_error"
    assert b"[DONE]" not in received and b'"finish_reason":"stop"' not in received
    assert b"engine failed" not in received
    assert not cloud.exchanges
    [record] = await router.records(1)
    assert record["outcome"] == "broken" and len(record["attempts"]) == 1
    assert router.metric("isthmus_router_attempts_total", tier="edge", outcome="broken") == 1


@pytest.mark.parametrize("fault", ["before content", "empty", "error first", "no answer"])
async def test_a_stream_that_breaks_before_content_moves_on(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, fault: str
) -> None:
    """The opening chunk of the first backend is held back, so the answer comes from the second alone."""
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}])
    await router.report(edge)
    edge.script({
        "before content": answers.broken_stream(end=End.CLEAN),
        "empty": Answer(headers=answers.EVENT_STREAM),
        "error first": answers.broken_stream(error=True, done=True, end=End.CLEAN),
        "no answer": answers.hang_up(),
    }[fault])  # fmt: skip
    good = answers.stream("Pa", "ris")
    cloud.script(good)
    async with router.ask(stream=True) as response:
        assert await response.read() == good.body
        assert response.headers["x-isthmus-tier"] == "cloud"
        assert response.headers["x-isthmus-backend"] == "cloud-1"
    [record] = await router.records(1)
    assert [a["tier"] for a in record["attempts"]] == ["edge", "cloud"]
    assert record["outcome"] == "ok"


@pytest.mark.parametrize("status,code", [(400, "context_length_exceeded"), (429, "rate_limit_exceeded")])
async def test_a_refusal_before_the_first_byte_keeps_its_status(
    start_router: StartRouter, edge: Upstream, status: int, code: str
) -> None:
    """SSE-07: no 200 with the error hidden in the stream."""
    router = await start_router()
    await router.report(edge)
    edge.script(answers.failure(status, code, {"Retry-After": "7"} if status == 429 else None))
    async with router.ask(stream=True) as response:
        body = await response.json()
        assert response.status == status
        assert response.content_type == "application/json"
        assert body["error"]["code"] == code
        assert response.headers.get("Retry-After") == ("7" if status == 429 else None)
        assert response.headers["x-isthmus-tier"] == "edge"


async def test_silence_is_bridged_by_comments_and_failover_still_works(
    start_router: StartRouter, edge: Upstream, cloud: Upstream
) -> None:
    """After a keep-alive the status is committed, but no content was sent: another backend may still answer."""
    router = await start_router(
        clouds=[{"id": "cloud-1", "url": cloud.url}], keepalive_s=0.05, timeouts={"first_token_s": 0.4}
    )
    await router.report(edge)
    edge.script(answers.silence(headers_sent=True))
    good = answers.stream("Pa", "ris")
    cloud.script(good)
    async with router.ask(stream=True) as response:
        received = await response.read()
    assert received.startswith(b": keep-alive\n\n")
    assert received.endswith(good.body)
    assert b": backend cloud-1\n\n" in received


async def test_all_failing_after_a_comment_is_one_error_event(start_router: StartRouter, edge: Upstream) -> None:
    router = await start_router(keepalive_s=0.05, timeouts={"first_token_s": 0.3})
    await router.report(edge)
    edge.script(answers.silence())
    async with router.ask(stream=True) as response:
        received = await response.read()
        assert response.status == 200
    assert received.count(b"data:") == 1 and b"first_token_timeout" in received and DONE not in received


async def test_long_streams_live_and_stalled_ones_die(start_router: StartRouter, edge: Upstream) -> None:
    """FO-07: there is no limit on the whole; silence between tokens is what ends a stream."""
    router = await start_router(timeouts={"first_token_s": 0.5, "idle_s": 0.5})
    await router.report(edge)
    edge.script(answers.stream(*"abcdefghijklmnopqrst", gap_s=0.1))
    async with router.ask(stream=True) as response:
        assert (await response.read()).endswith(DONE)
    edge.script(answers.broken_stream("a", "b", "c", "d", "e", end=End.STALL))
    async with router.ask(stream=True) as response:
        received = await response.read()
    assert received.count(b"data:") == 7 and b"idle_timeout" in received and DONE not in received
    await edge.exchanges[1].wait_ended()


async def test_comments_of_a_backend_are_no_progress(start_router: StartRouter, edge: Upstream) -> None:
    """FO-07: an engine that stalls behind its own keep-alives is still cut."""
    router = await start_router(timeouts={"idle_s": 0.4})
    await router.report(edge)
    stalled = answers.broken_stream("a", end=End.STALL)
    comments = tuple(answers.Write(b": ping\n\n", after_s=0.1) for _ in range(60))
    edge.script(Answer(headers=answers.EVENT_STREAM, writes=(*stalled.writes, *comments), end=End.STALL))
    async with router.ask(stream=True) as response:
        assert b"idle_timeout" in await response.read()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_stops_the_backend(
    start_router: StartRouter, edge: Upstream, cloud: Upstream, stream: bool
) -> None:
    """SSE-03 (router): the backend notices within a second, in both modes and on both tiers; nothing stays counted."""
    router = await start_router(clouds=[{"id": "cloud-1", "url": cloud.url}])
    await router.report(edge)
    for upstream, route in ((edge, "edge"), (cloud, "cloud")):
        slow = answers.stream(*["x"] * 200, gap_s=0.05) if stream else answers.completion(after_s=30)
        upstream.script(slow)
        asked = router.ask(stream=stream, headers={"x-isthmus-route": route})
        if stream:
            async with asked as response:
                await response.content.readany()
        else:
            task = asyncio.create_task(asked.__aenter__())
            await upstream.wait_exchanges(1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await upstream.exchanges[0].wait_ended(2.0)
        assert not upstream.exchanges[0].finished
    await eventually(lambda: router.in_flight() == 0)
    records = await router.records(2)
    assert [r["outcome"] for r in records] == ["client_left"] * 2
    assert [r["attempts"][-1]["outcome"] for r in records] == ["client_left"] * 2


async def test_a_slow_reader_slows_the_backend(start_router: StartRouter, edge: Upstream) -> None:
    """Back-pressure: what the router holds for one client is bounded, whatever the backend could send."""
    router = await start_router()
    await router.report(edge)
    big = "x" * 60_000
    edge.script(answers.stream(*[big] * 400))
    async with router.ask(stream=True) as response:
        await response.content.readany()
        await asyncio.sleep(0.5)
        held_back = edge.exchanges[0].tokens_sent
        assert held_back < 300, "the backend was not slowed down"
        received = 0
        async for chunk in response.content.iter_any():
            received += len(chunk)
    assert received > 300 * 60_000
