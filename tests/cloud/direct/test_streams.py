"""Direct streams between a real inbox and a real outbox: order, ends, refusals, and either side going away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from cloud.direct.frames import frame
from cloud.direct.inbox import Address, Receiver, Sent
from cloud.direct.outbox import Outbox
from shared.errors import BackendUnreachable, NotReady, StreamBroken

LOOPBACK = "127.0.0.1"


async def events(*items: Any) -> AsyncGenerator[Any, None]:
    for item in items:
        await asyncio.sleep(0)
        yield item


def served(outbox: Outbox, *items: Any) -> Callable[[Address], Awaitable[Sent]]:
    return lambda address: outbox.send(address, events(*items))


Writers = list[asyncio.StreamWriter]


@pytest.fixture
async def writers() -> AsyncIterator[Writers]:
    """Connections that a test opens by itself; they are closed behind it."""
    opened: Writers = []
    yield opened
    for writer in opened:
        writer.transport.abort()
    await asyncio.sleep(0)


@pytest.fixture
async def outbox() -> AsyncIterator[Outbox]:
    outbox = Outbox()
    yield outbox
    await outbox.close()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver(LOOPBACK, 60)
    yield receiver
    await receiver.close()


async def test_events_arrive_in_order_and_end(receiver: Receiver, outbox: Outbox) -> None:
    texts = [f"data: {number}é\n\n" for number in range(300)]
    got = [item async for item in receiver.stream(served(outbox, *texts))]
    assert got == [text.encode() for text in texts]


async def test_many_streams_share_one_connection_and_do_not_mix(receiver: Receiver, outbox: Outbox) -> None:
    addresses: set[tuple[str, int]] = set()

    async def one(number: int) -> list[bytes]:
        async def call(address: Address) -> Sent:
            addresses.add((address.host, address.port))
            return await outbox.send(address, events(*[f"{number}:{turn}" for turn in range(50)]))

        return [item async for item in receiver.stream(call)]

    answers = await asyncio.gather(*(one(number) for number in range(32)))
    assert answers == [[f"{number}:{turn}".encode() for turn in range(50)] for number in range(32)]
    assert len(addresses) == len(outbox.lines) == 1


async def test_what_is_no_stream_comes_back_through_the_call(receiver: Receiver, outbox: Outbox) -> None:
    whole = {"choices": []}
    assert [item async for item in receiver.stream(served(outbox, whole))] == [whole]


async def test_a_refusal_after_events_comes_after_them(receiver: Receiver, outbox: Outbox) -> None:
    refusal = NotReady("no")
    assert [item async for item in receiver.stream(served(outbox, "a", refusal))] == [b"a", refusal]


async def test_a_call_that_fails_fails_its_stream(receiver: Receiver) -> None:
    async def call(_: Address) -> Sent:
        raise NotReady("full")

    with pytest.raises(NotReady):
        [item async for item in receiver.stream(call)]


async def test_a_connection_that_ends_breaks_its_streams_at_once_and_no_other(
    receiver: Receiver, outbox: Outbox
) -> None:
    """The replica died; Serve may need a second to say so."""
    told = asyncio.Event()

    async def dies(address: Address) -> Sent:
        _, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(address.greeting + frame(address.stream, b"a"))
        await writer.drain()
        await told.wait()
        writer.transport.abort()
        await asyncio.Event().wait()
        raise AssertionError

    other = receiver.stream(served(outbox, "x", "y"))
    assert await anext(other) == b"x"
    stream = receiver.stream(dies)
    assert await anext(stream) == b"a"
    told.set()
    with pytest.raises(StreamBroken):
        await asyncio.wait_for(anext(stream), 30)
    assert [item async for item in other] == [b"y"]


async def test_a_stream_without_an_end_breaks_though_its_call_succeeded(
    receiver: Receiver, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloud.direct.inbox._LAST_LIMIT_S", 0.01)

    async def loses(address: Address) -> Sent:
        _, writer = await asyncio.open_connection(address.host, address.port)
        writers.append(writer)
        writer.write(address.greeting + frame(address.stream, b"a"))
        await writer.drain()
        return Sent(2)

    stream = receiver.stream(loses)
    assert await anext(stream) == b"a"
    with pytest.raises(StreamBroken):
        await anext(stream)


async def test_a_reader_that_leaves_cancels_the_call_and_late_events_go_nowhere(
    receiver: Receiver, outbox: Outbox
) -> None:
    cancelled = asyncio.Event()

    async def endless() -> AsyncGenerator[Any, None]:
        try:
            while True:
                yield "a"
                await asyncio.sleep(0)
        finally:
            cancelled.set()

    stream = receiver.stream(lambda address: outbox.send(address, endless()))
    assert await anext(stream) == b"a"
    await stream.aclose()
    assert cancelled.is_set()
    assert [item async for item in receiver.stream(served(outbox, "b"))] == [b"b"]


async def test_who_does_not_know_the_greeting_is_hung_up_on(receiver: Receiver, outbox: Outbox) -> None:
    gate = asyncio.Event()

    async def call(address: Address) -> Sent:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(bytes(32) + frame(address.stream, b"forged") + frame(address.stream, b""))
        assert await reader.read() == b""
        writer.close()
        gate.set()
        return await outbox.send(address, events("real"))

    assert [item async for item in receiver.stream(call)] == [b"real"]
    assert gate.is_set()


async def test_a_replica_whose_machine_is_lost_says_nothing_and_its_streams_break(writers: Writers) -> None:
    receiver = Receiver(LOOPBACK, 0.2)

    async def vanishes(address: Address) -> Sent:
        _, writer = await asyncio.open_connection(address.host, address.port)
        writers.append(writer)
        writer.write(address.greeting + frame(address.stream, b"a"))
        await asyncio.Event().wait()
        raise AssertionError

    stream = receiver.stream(vanishes)
    assert await anext(stream) == b"a"
    with pytest.raises(StreamBroken):
        await asyncio.wait_for(anext(stream), 30)
    await receiver.close()


async def test_a_replica_that_thinks_for_long_shows_that_it_is_alive(outbox: Outbox) -> None:
    """Between two events may lie many times the silence that ends a connection."""
    receiver = Receiver(LOOPBACK, 0.5)

    async def slow() -> AsyncGenerator[Any, None]:
        yield "a"
        await asyncio.sleep(1.5)
        yield "b"

    got = [item async for item in receiver.stream(lambda address: outbox.send(address, slow()))]
    assert got == [b"a", b"b"]
    await receiver.close()


async def test_an_ingress_that_is_gone_is_named_and_the_source_closed(outbox: Outbox) -> None:
    receiver, closed = Receiver(LOOPBACK, 60), asyncio.Event()
    seen: list[Address] = []

    async def first(address: Address) -> Sent:
        seen.append(address)
        return await outbox.send(address, events("a"))

    assert [item async for item in receiver.stream(first)] == [b"a"]
    await receiver.close()

    async def source() -> AsyncGenerator[Any, None]:
        try:
            while True:
                yield "b"
                await asyncio.sleep(0)
        finally:
            closed.set()

    with pytest.raises((StreamBroken, BackendUnreachable)):
        await asyncio.wait_for(outbox.send(seen[0], source()), 30)
    assert closed.is_set()
    with pytest.raises(BackendUnreachable):
        await outbox.send(seen[0], events("c"))


async def test_an_ingress_that_reads_slowly_holds_its_streams_back(
    monkeypatch: pytest.MonkeyPatch, outbox: Outbox
) -> None:
    """Memory of the replica stays bounded: events wait in the engine, where a client that leaves ends them."""
    monkeypatch.setattr("cloud.direct.outbox._HIGH_WATER_BYTES", 64 * 1024)
    sent = 0
    release = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        while await reader.read(1 << 20):
            pass
        writer.close()

    async def source() -> AsyncGenerator[Any, None]:
        nonlocal sent
        for _ in range(2000):
            yield "x" * 16_384
            sent += 1
            await asyncio.sleep(0)

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    address = Address(LOOPBACK, server.sockets[0].getsockname()[1], bytes(32), 60, 1)
    sending = asyncio.ensure_future(outbox.send(address, source()))
    before = -1
    while before != sent or not sent:  # until it stands still
        before = sent
        await asyncio.sleep(0.05)
    assert sent < 2000
    assert not sending.done()
    release.set()
    assert await asyncio.wait_for(sending, 60) == Sent(2000)
    server.close()


def test_it_works_on_the_loop_that_replicas_run_on() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def both() -> list[Any]:
        receiver, outbox = Receiver(LOOPBACK, 60), Outbox()
        got = [item async for item in receiver.stream(served(outbox, "a", "b"))]
        await outbox.close()
        await receiver.close()
        return got

    assert uvloop.run(both()) == [b"a", b"b"]


async def test_a_call_whose_cancellation_was_lost_ends_because_nobody_reads(receiver: Receiver, outbox: Outbox) -> None:
    """RY-01: a call that was cancelled just as it began."""
    ended = asyncio.Event()
    running: list[asyncio.Task[Sent]] = []

    async def endless() -> AsyncGenerator[Any, None]:
        try:
            while True:
                yield "a"
                await asyncio.sleep(0)
        finally:
            ended.set()

    async def call(address: Address) -> Sent:
        running.append(asyncio.ensure_future(outbox.send(address, endless())))
        return await asyncio.shield(running[0])

    stream = receiver.stream(call)
    assert await anext(stream) == b"a"
    await stream.aclose()
    await asyncio.wait_for(ended.wait(), 30)
    with pytest.raises(StreamBroken):
        await running[0]
