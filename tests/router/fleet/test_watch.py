"""The fleet outlives its state store: last known for a while, then stale, with one log line a change."""

from __future__ import annotations

import io
from collections.abc import Iterable

import orjson
import pytest

from router.fleet.watch import FleetWatch
from shared import logs
from shared.errors import StateRefused, StateUnavailable
from shared.fleet import BackendState, Heartbeat
from shared.state.memory import MemoryStateStore
from shared.state.port import Report, Signed
from shared.testing.clock import ManualClock


class FlakyStore(MemoryStateStore):
    """A memory store that can be gone."""

    gone = False
    full = False

    async def publish(self, heartbeat: Heartbeat, signed: Signed | None = None) -> bool:
        if self.gone:
            raise StateUnavailable("gone")
        if self.full:
            raise StateRefused("full")
        return await super().publish(heartbeat, signed)

    async def forget(self, backend_id: str) -> None:
        if self.full:
            raise StateRefused("full")
        await super().forget(backend_id)

    async def reports(self) -> tuple[Report, ...]:
        if self.gone:
            raise StateUnavailable("gone")
        return await super().reports()


def beat(name: str, sequence: int, instance: str = "instance-a") -> Heartbeat:
    return Heartbeat(
        backend_id=name, instance=instance, sequence=sequence, url=f"http://{name}", state=BackendState.READY
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def age_ms(watch: FleetWatch, clock: ManualClock, name: str) -> int:
    return clock.now_ms() - watch.reports()[name].received_ms


async def test_ages_stand_still_while_the_store_is_gone_and_then_jump(clock: ManualClock) -> None:
    """RD-03: the last known fleet is used up to its age limit."""
    sink = io.StringIO()
    logs.configure(stream=sink)
    store = FlakyStore(clock, ttl_s=60)
    watch = FleetWatch(store, clock, last_known_ms=15_000)
    await store.publish(beat("remote", 1))
    await watch.refresh()
    await clock.advance(1)
    await watch.refresh()
    store.gone = True
    for _ in range(14):
        await clock.advance(1)
        await watch.refresh()
        assert age_ms(watch, clock, "remote") == 1_000
    await clock.advance(2)
    assert age_ms(watch, clock, "remote") == 17_000
    store.gone = False
    await store.publish(beat("remote", 2))
    await watch.refresh()
    assert age_ms(watch, clock, "remote") == 0 and watch.up
    events = [orjson.loads(line)["event"] for line in sink.getvalue().splitlines()]
    assert events == ["state_store_down", "state_store_up"]


async def test_agents_that_report_here_stay_fresh_without_the_store(clock: ManualClock) -> None:
    store = FlakyStore(clock, ttl_s=60)
    watch = FleetWatch(store, clock, last_known_ms=15_000)
    store.gone = True
    for sequence in range(30):
        assert await watch.publish(beat("local", sequence))
        await clock.advance(1)
        await watch.refresh()
        assert age_ms(watch, clock, "local") <= 1_000
    assert not await watch.publish(beat("local", 3))
    store.gone = False
    assert await watch.publish(beat("local", 40))
    await watch.refresh()
    assert list(watch.reports()) == ["local"]


async def test_a_beat_counts_at_once(clock: ManualClock) -> None:
    watch = FleetWatch(MemoryStateStore(clock, ttl_s=60), clock, last_known_ms=15_000)
    assert await watch.publish(beat("pi", 1))
    assert list(watch.reports()) == ["pi"]
    assert not await watch.publish(beat("pi", 0))
    assert await watch.publish(beat("pi", 0, "instance-b"))
    assert not await watch.publish(beat("pi", 9, "instance-a"))


async def test_an_outage_is_not_held_against_the_fleet(clock: ManualClock) -> None:
    """RD-03: when the store is back, agents that could not report meanwhile are as old as before, not older."""
    store = FlakyStore(clock, ttl_s=60)
    watch = FleetWatch(store, clock, last_known_ms=15_000)
    await store.publish(beat("remote", 1))
    await watch.refresh()
    store.gone = True
    await watch.refresh()
    await clock.advance(10)
    store.gone = False
    await watch.refresh()
    assert age_ms(watch, clock, "remote") == 0
    await clock.advance(3)
    await watch.refresh()
    assert age_ms(watch, clock, "remote") == 3_000, "and silence counts again from then on"


async def test_another_routers_newer_report_wins(clock: ManualClock) -> None:
    store = MemoryStateStore(clock, ttl_s=60)
    watch = FleetWatch(store, clock, last_known_ms=15_000)
    await watch.publish(beat("pi", 1))
    await store.publish(beat("pi", 2))
    await watch.refresh()
    assert watch.reports()["pi"].heartbeat.sequence == 2
    await clock.advance(61)
    await watch.refresh()
    assert watch.reports() == {}


async def test_a_report_that_is_not_trusted_is_not_of_the_fleet(clock: ManualClock) -> None:
    store = MemoryStateStore(clock, ttl_s=60)
    await store.publish(beat("good", 1), Signed(b"{}", "by good"))
    await store.publish(beat("forged", 1))

    def trusted(reports: Iterable[Report]) -> list[Report]:
        return [report for report in reports if report.signed is not None]

    watch = FleetWatch(store, clock, last_known_ms=15_000, trusted=trusted)
    await watch.refresh()
    assert set(watch.reports()) == {"good"}


async def test_an_old_report_that_is_put_back_is_not_taken_for_a_newer_one(clock: ManualClock) -> None:
    """Its signature is good, and whoever can write to the store can repeat it."""
    store = MemoryStateStore(clock, ttl_s=60)
    await store.publish(beat("pi", 7))
    watch = FleetWatch(store, clock, last_known_ms=15_000)
    await watch.refresh()
    await clock.advance(3)
    await store.forget("pi")
    await store.publish(beat("pi", 6))
    await watch.refresh()
    assert watch.reports()["pi"].heartbeat.sequence == 7
    assert age_ms(watch, clock, "pi") == 3_000


async def test_a_store_that_is_full_is_up_and_said_once(clock: ManualClock) -> None:
    """RD-03 kind: it is read as ever; what reports here is used, and nothing flaps."""
    sink = io.StringIO()
    logs.configure(stream=sink)
    store = FlakyStore(clock, ttl_s=60)
    watch = FleetWatch(store, clock, last_known_ms=15_000)
    await watch.publish(beat("own", 1))
    store.full = True
    for sequence in range(2, 30):
        await clock.advance(1)
        assert await watch.publish(beat("own", sequence))
        await watch.refresh()
        assert watch.up
        assert age_ms(watch, clock, "own") == 0
    store.full = False
    await watch.publish(beat("own", 30))
    events = [orjson.loads(line)["event"] for line in sink.getvalue().splitlines()]
    assert events == ["state_store_refuses", "state_store_takes_again"]


async def test_a_store_that_refuses_to_forget_is_not_gone(clock: ManualClock) -> None:
    """RD-03 kind: a replica that another took over from serves readers; nothing stands still because of it."""
    store = FlakyStore(clock, ttl_s=60)
    watch = FleetWatch(store, clock, last_known_ms=15_000)
    await store.publish(beat("remote", 1))
    await watch.refresh()
    store.full = True
    await watch.forget("other")
    assert watch.up
    await clock.advance(1)
    assert age_ms(watch, clock, "remote") == 1_000
