"""The agent under pressure: clients that leave, wait, stall or flood, a silent engine, a process that drains."""

from __future__ import annotations

import asyncio
import contextlib
import json

import orjson
import pytest

from tests.edge.service import fakes
from tests.edge.service.fakes import EngineServer, FakeEngine, answer_of, chunk, plays
from tests.edge.service.harness import Running, idle, received_of, running_agent, until


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
async def test_a_client_that_leaves_stops_the_engine(
    running: Running, server: EngineServer, caplog: pytest.LogCaptureFixture, stream: bool, phase: str
) -> None:
    """SSE-03: the engine is left at once, the slot is free, the next request runs, the counter counts."""
    events = [fakes.progress(1)] if phase == "prefill" else [fakes.OPENING, *[chunk({"content": "x"})] * 4]
    server.scripts.append(plays(events, then="hang"))
    request = asyncio.create_task(running.chat(stream=stream, max_tokens=1000).__aenter__())
    await until(lambda: len(server.exchanges) == 1 and server.exchanges[0].sent == len(events))
    if stream and phase == "decode":
        response = await request
        await response.content.readany()
        response.close()
    else:
        request.cancel()
    await asyncio.wait_for(server.exchanges[0].ended.wait(), 5)
    assert server.exchanges[0].left
    await until(lambda: idle(running))
    async with running.chat() as response:
        assert response.status == 200
    metrics = await running.metrics()
    assert "isthmus_edge_cancelled_total 1.0" in metrics
    assert "isthmus_edge_in_flight 0.0" in metrics
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]


async def test_beyond_slots_and_queue_comes_503_and_the_rest_completes(running: Running, server: EngineServer) -> None:
    """EC-01: one slot, a queue of four, ten clients: five are served one at a time, five hear when to come back."""
    server.default = plays(answer_of("Pa", "ris", "."), gap_s=0.02)

    async def ask() -> tuple[int, str | None, str]:
        async with running.chat(stream=True) as response:
            return response.status, response.headers.get("Retry-After"), (await response.read()).decode()

    answers = await asyncio.gather(*(ask() for _ in range(10)))
    served = [body for status, _, body in answers if status == 200]
    refused = [(retry, json.loads(body)) for status, retry, body in answers if status == 503]
    assert len(served) == 5
    assert len(refused) == 5
    assert all(body.endswith("data: [DONE]\n\n") for body in served)
    assert all(int(retry or 0) >= 1 and body["error"]["code"] == "queue_full" for retry, body in refused)
    assert server.most_open == 1
    assert idle(running)


async def test_a_queued_client_that_leaves_gives_its_place_up(running: Running, server: EngineServer) -> None:
    """RY-01 kind: whatever ends a request, nothing stays counted."""
    server.scripts.append(plays([fakes.progress(0)], then="hang"))
    first = asyncio.create_task(running.chat().__aenter__())
    await until(lambda: running.agent.admission.busy == 1)
    waiting = [asyncio.create_task(running.chat().__aenter__()) for _ in range(4)]
    await until(lambda: running.agent.admission.queued == 4)
    for task in waiting:
        task.cancel()
    await until(lambda: running.agent.admission.queued == 0)
    first.cancel()
    await until(lambda: idle(running))
    assert len(server.exchanges) == 1  # those who left the line never reached the engine


async def test_a_hundred_early_cancellations_leave_nothing_behind(running: Running, server: EngineServer) -> None:
    """RY-01: cancelled at random moments after the send; then a normal request is served."""
    server.default = plays(answer_of("Pa", "ris"), gap_s=0.002)
    for round_ in range(100):
        task = asyncio.create_task(running.chat(stream=round_ % 2 == 0).__aenter__())
        await asyncio.sleep(0.0004 * (round_ % 25))
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            (await task).close()
    await until(lambda: idle(running))
    await until(lambda: server.open == 0)
    async with running.chat() as response:
        assert response.status == 200


async def test_health_answers_while_the_engine_is_busy(running: Running, server: EngineServer) -> None:
    server.scripts.append(plays([fakes.progress(0)], then="hang"))
    busy = asyncio.create_task(running.chat().__aenter__())
    await until(lambda: running.agent.admission.busy == 1)
    for route in ("/healthz", "/readyz"):
        async with running.session.get(running.url + route) as response:
            assert response.status == 200
    busy.cancel()
    await until(lambda: idle(running))


async def test_a_silent_engine_is_given_up(engine: FakeEngine) -> None:
    """FO-07 kind: idle between tokens is limited, and the error names the limit; pings are no life."""
    async with running_agent(engine, idle_limit_s=0.3) as running:
        engine.server.scripts.append(plays([*answer_of("Pa")[:4], *[b": \n\n"] * 400], gap_s=0.05))
        async with running.chat(stream=True) as response:
            received = await received_of(response)
        assert b'"code":"idle_timeout"' in received
        assert engine.doubts == 1
        await until(lambda: idle(running))


async def test_a_client_that_does_not_read_loses_its_slot(engine: FakeEngine) -> None:
    async with running_agent(engine, limits={"client_stall_s": 0.3}) as running:
        engine.server.scripts.append(plays([fakes.OPENING, *[chunk({"content": "x" * 60_000})] * 2000], then="hang"))
        reader, writer = await asyncio.open_connection("127.0.0.1", int(running.url.rsplit(":", 1)[1]))
        body = orjson.dumps({"model": fakes.MODEL, "stream": True, "messages": [{"role": "user", "content": "x"}]})
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        writer.write(head.encode() + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await until(lambda: running.agent.admission.busy == 1)
        await until(lambda: idle(running))
        writer.close()
        del reader


async def test_open_requests_are_capped(engine: FakeEngine) -> None:
    async with running_agent(engine, limits={"connections": 2}) as running:
        engine.server.default = plays([fakes.progress(0)], then="hang")
        held = [asyncio.create_task(running.chat().__aenter__()) for _ in range(2)]
        await until(lambda: running.agent.lifecycle.in_flight == 2)
        async with running.chat() as response:
            assert response.status == 503
        async with running.session.get(f"{running.url}/healthz") as response:
            assert response.status == 200
        for task in held:
            task.cancel()


async def test_a_body_that_never_arrives_is_given_up(engine: FakeEngine) -> None:
    async with running_agent(engine, limits={"body_s": 0.2}) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(running.url.rsplit(":", 1)[1]))
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        writer.write(head.encode() + b"Content-Length: 100\r\n\r\n{")
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")
        writer.close()


async def test_draining_lets_streams_finish_and_refuses_new_work(running: Running, server: EngineServer) -> None:
    """UP-01: readiness false at once, the running stream ends with [DONE], new requests get 503 and a closed door."""
    server.scripts.append(plays(answer_of("Pa", "ris", "."), gap_s=0.05))
    async with running.chat(stream=True) as response:
        await response.content.readany()
        drained = asyncio.create_task(running.agent.lifecycle.drain(10))
        await asyncio.sleep(0)
        async with running.session.get(f"{running.url}/readyz") as ready:
            assert ready.status == 503
            assert (await ready.json())["reason"] == "draining"
        async with running.chat() as refused:
            assert refused.status == 503
            assert refused.headers["Connection"] == "close"
            assert (await refused.json())["error"]["code"] == "draining"
        assert (await response.read()).endswith(b"data: [DONE]\n\n")
    assert await drained


async def test_the_drain_limit_cuts_with_an_error_event(running: Running, server: EngineServer) -> None:
    """UP-01: at the limit, one error event; a request that waits in the line hears it too."""
    server.scripts.append(plays(answer_of("Pa")[:4], then="hang"))
    async with running.chat(stream=True) as response:
        await response.content.readany()
        waiting = asyncio.create_task(running.chat().__aenter__())
        await until(lambda: running.agent.admission.queued == 1)
        assert not await running.agent.lifecycle.drain(0.05)
        assert b'"code":"draining"' in await received_of(response)
        assert (await waiting).status == 503
    assert idle(running)


async def test_calibration_gives_way_to_real_work(engine: FakeEngine) -> None:
    """A measurement that runs when a client comes is left at its next event; the rates then come from real answers."""
    slow = plays([*[fakes.progress(n) for n in range(1000)], *answer_of("never")], gap_s=0.01)
    engine.server.scripts.append(slow)
    async with running_agent(engine, wait=False) as running:
        await until(lambda: len(engine.server.exchanges) == 1)
        async with running.chat() as response:
            assert response.status == 200
        assert engine.server.exchanges[0].left
        assert running.agent.rates.decode_tokens_per_s is not None
