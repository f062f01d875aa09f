"""RD-03 kind: another Redis takes over, and the one before it lives on, frozen or demoted, with connections that stand.

Two real servers behind one name. Who writes and who only reads must reach the new
primary, nothing may be done twice, and no connection to the old one may stay.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from shared.clock import Clock, SystemClock
from shared.errors import StateRefused, StateUnavailable
from shared.state.address import RedisAddress
from shared.state.agreed import AgreedRegister
from shared.state.link import RedisLink, Script
from shared.state.redis import RedisStateStore
from shared.state.register import FileRegister
from shared.testing.clock import ManualClock
from shared.testing.redis_pair import RedisPair, connections, until
from shared.testing.redis_server import RedisServer, binary
from tests.contracts.test_state_store import beat

pytestmark = [
    pytest.mark.redis,
    pytest.mark.skipif(binary() is None, reason="redis-server is not installed"),
]

_COUNT = Script("return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)")
_COUNTED = "isthmus:{fleet}:v2:counted"


@dataclass
class Routers:
    """Links to one address, closed at the end. Their limit is long, but for those that are to meet silence."""

    url: str
    limit_s: float = 5
    links: list[RedisLink] = field(default_factory=list)

    def link(self, clock: Clock | None = None) -> RedisLink:
        self.links.append(RedisLink(RedisAddress(url=self.url), clock or SystemClock(), limit_s=self.limit_s))
        return self.links[-1]

    def store(self, clock: Clock | None = None) -> RedisStateStore:
        return RedisStateStore(self.link(clock), clock or SystemClock(), ttl_s=60)

    async def close(self) -> None:
        for link in self.links:
            await link.close()


class Pair(RedisPair):
    """Two servers behind one name, and the routers that ask there."""

    routers: Routers


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    async with Pair() as opened:
        opened.routers = Routers(opened.url)
        yield opened
        opened.old.thaw()
        opened.new.thaw()
        await opened.routers.close()


@pytest.mark.parametrize("follows", [False, True], ids=["stale", "following"])
async def test_a_writer_leaves_a_demoted_primary_at_once(pair: Pair, follows: bool) -> None:
    link = pair.routers.link()
    store = RedisStateStore(link, SystemClock(), ttl_s=60)
    await used_at_once(link)
    assert await store.publish(beat("a"))
    await pair.replicated()
    pair.promote()
    pair.demote(follows=follows)
    assert await store.publish(beat("a", sequence=2)), "what was refused is sent to the new primary"
    assert [r.sequence for r in await store.reports()] == [2]
    assert (link.failures, link.turns) == (0, 1), "no call failed, and connections were made anew once"
    await until(lambda: connections(pair.old) == 0)
    assert 0 < connections(pair.new) <= 8


async def test_a_reader_alone_leaves_a_demoted_primary_at_once(pair: Pair, tmp_path: Path) -> None:
    """It would be told the same stale fleet for ever, and never hear of a key that was revoked."""
    link, fresh = pair.routers.link(), RedisLink(RedisAddress(url=pair.new.url), SystemClock(), limit_s=5)
    reader = RedisStateStore(link, SystemClock(), ttl_s=60)
    register = AgreedRegister(_register(tmp_path / "reader.json"), link, "isthmus:{fleet}:v2:register:keys")
    writer = RedisStateStore(fresh, SystemClock(), ttl_s=60)
    author = AgreedRegister(_register(tmp_path / "author.json"), fresh, "isthmus:{fleet}:v2:register:keys")
    assert await pair.routers.store().publish(beat("a"))
    assert len(await reader.reports()) == 1
    await register.refresh()
    await pair.replicated()
    pair.promote()
    pair.demote()
    await author.update(lambda book: replace(book, words=("revoked",)))
    for backend_id in ("a", "b"):
        assert await writer.publish(beat(backend_id, sequence=2))
    await register.refresh()
    assert register.content.words == ("revoked",)
    assert [(r.backend_id, r.sequence) for r in await reader.reports()] == [("a", 2), ("b", 2)]
    assert link.failures == 0
    await fresh.close()


async def test_where_no_primary_is_found_readers_read_on_and_look_for_one_rarely(pair: Pair) -> None:
    """All know only the old one for a while: connections are not made anew for each command meanwhile."""
    clock = ManualClock()
    link = pair.routers.link(clock)
    store = RedisStateStore(link, clock, ttl_s=600)
    assert await store.publish(beat("a"))
    [known] = await store.reports()
    pair.demote()
    for sequence in range(2, 40):
        with pytest.raises(StateRefused):
            await store.publish(beat("a", sequence=sequence))
        assert await store.reports() == (known,)
    assert (link.failures, link.turns) == (0, 1)
    for _ in range(60):
        await clock.advance(1)
        assert await store.reports() == (known,)
    assert link.turns <= 16, "every five seconds at most, in the end"
    pair.promote()
    await clock.advance(5)
    assert await store.publish(beat("a", sequence=50))
    assert [r.sequence for r in await store.reports()] == [50]
    assert link.failures == 0


async def test_commands_under_way_through_a_failover_are_done_once(pair: Pair) -> None:
    """`FAILOVER` loses nothing; each caller that was answered counted once, and the others at most once."""
    links = [pair.routers.link() for _ in range(3)]
    ends: Counter[str] = Counter()
    answered: set[str] = set()
    stop = asyncio.Event()

    async def caller(link: RedisLink, name: str) -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            try:
                await link.run(_COUNT, [_COUNTED], [f"{name}-{turn}"])
            except StateUnavailable as error:
                ends[type(error).__name__] += 1
                await asyncio.sleep(0.005)
            else:
                answered.add(f"{name}-{turn}")

    callers = [asyncio.create_task(caller(link, f"{n}-{m}")) for n, link in enumerate(links) for m in range(6)]
    await asyncio.sleep(0.3)
    assert pair.old.command("FAILOVER", "TO", "127.0.0.1", str(pair.new.port)).startswith(b"+OK")
    await until(lambda: b"role:master" in pair.new.command("INFO", "replication"))
    pair.name.move(pair.new.url)
    moved = len(answered)
    await until(lambda: len(answered) > moved + 500)
    stop.set()
    await asyncio.gather(*callers)
    counted = await _counted(pair.new)
    assert set(counted.values()) == {1}, "a command was done twice"
    assert answered <= counted.keys(), "a command that was answered was lost"
    await until(lambda: connections(pair.old) == 0)
    assert all(link.turns <= 8 for link in links), ends


@pytest.mark.parametrize("reads", [False, True], ids=["writer", "reader"])
async def test_a_frozen_primary_is_left_with_all_connections_on_the_first_silence(pair: Pair, reads: bool) -> None:
    """Each of eight connections would else cost a silence of its own, and the breaker's pause after it."""
    pair.routers.limit_s = 1
    link = pair.routers.link()
    store = RedisStateStore(link, SystemClock(), ttl_s=60)
    await used_at_once(link)
    assert await store.publish(beat("a"))
    await store.reports()
    await pair.replicated()
    before, turns = _descriptors(), link.turns
    pair.old.freeze()
    pair.promote()
    with pytest.raises(StateUnavailable):
        await (store.reports() if reads else store.publish(beat("a", sequence=2)))
    assert link.turns == turns + 1
    if reads:
        assert [r.sequence for r in await store.reports()] == [1]
    else:
        assert await store.publish(beat("a", sequence=2)), "the next one is served by the new primary"
    pair.old.thaw()
    await until(lambda: connections(pair.old) == 0)
    assert await store.publish(beat("a", sequence=3))
    assert [r.sequence for r in await store.reports()] == [3]
    assert _descriptors() <= before


async def test_what_may_have_been_done_is_not_sent_again(pair: Pair) -> None:
    """Frozen with commands in its hands, or cut in the middle of one: the caller is told, and nothing counts twice."""
    pair.routers.limit_s = 1
    link = pair.routers.link()
    await link.run(_COUNT, [_COUNTED], ["first"])
    for name in ("silent", "cut"):
        pair.old.freeze()
        lost = [asyncio.create_task(link.run(_COUNT, [_COUNTED], [f"{name}-{n}"])) for n in range(6)]
        await asyncio.sleep(0.1)
        if name == "cut":
            pair.name.reset()
        results = await asyncio.gather(*lost, return_exceptions=True)
        assert all(isinstance(each, StateUnavailable) for each in results)
        pair.old.thaw()
        await until_it_answers(lambda: link.run(_COUNT, [_COUNTED], [f"after-{time.monotonic()}"]))
    counted = await _counted(pair.old)
    assert set(counted.values()) == {1}
    assert any(name.startswith("silent") for name in counted), "it did what it had in its hands"


async def test_a_server_that_is_slow_now_and_then_is_not_kept_busy_with_connections(pair: Pair) -> None:
    """Each call that takes too long would else cost it eight new connections, just when it is slow."""
    clock = ManualClock()
    pair.routers.limit_s = 1
    link = pair.routers.link(clock)
    for turns in (1, 1, 1, 2):
        if turns == 2:
            await clock.advance(1)
        await used_at_once(link)
        pair.old.freeze()
        with pytest.raises(StateUnavailable):
            await link.run(_COUNT, [_COUNTED], ["slow"])
        pair.old.thaw()
        await link.run(_COUNT, [_COUNTED], ["quick"])
        assert link.turns == turns


async def test_commands_in_use_end_on_the_connections_that_are_left(pair: Pair) -> None:
    """A turn cuts no other command short: the old server may still do it, and says so."""
    link = pair.routers.link()
    await used_at_once(link)
    pair.name.latency_s = 0.05
    under_way = [asyncio.create_task(link.run(_COUNT, [_COUNTED], [f"{n}"])) for n in range(4)]
    await asyncio.sleep(0.01)
    link._leave(link._now)
    assert await asyncio.gather(*under_way) == [1, 1, 1, 1]
    pair.name.latency_s = 0
    await until(lambda: connections(pair.old) == 0)
    assert await link.run(_COUNT, [_COUNTED], ["0"]) == 2


async def test_a_replica_that_serves_nobody_is_down_and_is_left(pair: Pair) -> None:
    """`replica-serve-stale-data no`: it answers every command with a refusal, which is no sign that it works."""
    clock = ManualClock()
    link = pair.routers.link(clock)
    store = RedisStateStore(link, clock, ttl_s=600)
    assert await store.publish(beat("a"))
    await pair.replicated()
    pair.old.command("CONFIG", "SET", "replica-serve-stale-data", "no")
    pair.demote()
    await until(lambda: b"MASTERDOWN" in pair.old.command("GET", "x"))
    for ask in (store.reports, store.reports, lambda: store.publish(beat("a", sequence=2))):
        with pytest.raises(StateUnavailable) as caught:
            await ask()
        assert not isinstance(caught.value, StateRefused)
    assert link.failures == 3
    pair.promote()
    await clock.advance(5)
    assert await store.publish(beat("a", sequence=3))
    assert [r.sequence for r in await store.reports()] == [3]


async def test_a_primary_without_its_replicas_is_left_for_the_one_that_has_them(pair: Pair) -> None:
    """`min-replicas-to-write`: cut off from the others it refuses to write, and reads what only it knows."""
    link = pair.routers.link()
    store = RedisStateStore(link, SystemClock(), ttl_s=60)
    assert await store.publish(beat("a"))
    await store.reports()
    await pair.replicated()
    pair.promote()
    pair.old.command("CONFIG", "SET", "min-replicas-to-write", "1")
    await RedisStateStore(pair.routers.link(), SystemClock(), ttl_s=60).publish(beat("a", sequence=2))
    assert [r.sequence for r in await store.reports()] == [2]
    assert (link.failures, link.turns) == (0, 1)


async def test_a_restart_that_loads_and_one_that_forgot_are_no_loss_of_the_new_fleet(pair: Pair) -> None:
    """While it loads it serves nobody; a new one on the same name is read from the beginning."""
    link = pair.routers.link()
    store = RedisStateStore(link, SystemClock(), ttl_s=60)
    for name in ("kept", "gone"):
        assert await store.publish(beat(name))
    assert len(await store.reports()) == 2
    pair.old.command("EVAL", "for i = 1, 8000 do redis.call('SET', i, i) end", "0")
    assert pair.old.command("SAVE").startswith(b"+OK")
    slow = ("--key-load-delay", "100", "--loading-process-events-interval-bytes", "1024")
    restarting = asyncio.create_task(asyncio.to_thread(pair.old.restart, *slow))
    seen: Counter[str] = Counter()
    while not restarting.done():
        try:
            await store.reports()
        except StateUnavailable as error:
            seen[error.message] += 1
        await asyncio.sleep(0.05)
    await restarting
    assert any("BusyLoadingError" in said for said in seen), seen
    await until_it_answers(store.reports)
    assert [r.backend_id for r in await store.reports()] == ["gone", "kept"]
    pair.new.command("REPLICAOF", "NO", "ONE")
    pair.new.command("FLUSHALL")
    pair.name.move(pair.new.url)
    await asyncio.to_thread(pair.old.restart)
    await until_it_answers(lambda: store.publish(beat("kept", sequence=2)))
    assert [r.backend_id for r in await store.reports()] == ["kept"], "a ghost of the old memory"


async def test_connections_do_not_grow_over_many_failovers(pair: Pair) -> None:
    clock = ManualClock()
    link = pair.routers.link(clock)
    store = RedisStateStore(link, clock, ttl_s=6000)
    await used_at_once(link)
    sizes: list[int] = []
    for turn in range(1, 21):
        await clock.advance(10)
        assert await store.publish(beat("a", sequence=turn))
        await pair.swap()
        await used_at_once(link)
        assert [r.sequence for r in await store.reports()] == [turn]
        await until(lambda: connections(pair.new) == 0)
        sizes.append(_descriptors())
    assert max(sizes) <= sizes[0] + 2, sizes
    assert link.failures == 0


@dataclass(frozen=True)
class _Book:
    words: tuple[str, ...] = ()
    revision: int = 0


def _register(path: Path) -> FileRegister[_Book]:
    return FileRegister(path, _Book(), setting="test", title="The book")


async def used_at_once(link: RedisLink) -> None:
    """Have all of its connections open."""

    async def all_at_once() -> None:
        await asyncio.gather(*(link.run(_COUNT, [_COUNTED], [f"warm-{n}"]) for n in range(8)))

    await until_it_answers(all_at_once)


async def _counted(server: RedisServer) -> dict[str, int]:
    link = RedisLink(RedisAddress(url=server.url), SystemClock(), limit_s=5)
    answer = await link.run(Script("return redis.call('HGETALL', KEYS[1])"), [_COUNTED], [])
    await link.close()
    return {name.decode(): int(count) for name, count in zip(answer[::2], answer[1::2], strict=True)}


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def until_it_answers(ask: Callable[[], Awaitable[object]], limit_s: float = 10) -> None:
    deadline_s = time.monotonic() + limit_s
    while True:
        try:
            await ask()
            return
        except StateUnavailable:
            assert time.monotonic() < deadline_s, "the store does not answer"
            await asyncio.sleep(0.05)
