"""The directory's snapshot is the fleet as it stands, whatever came before, and costs nothing while nothing changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from router.dispatch.health import Health
from router.dispatch.ledger import Ledgers
from router.dispatch.targets import Access, Targets
from router.dispatch.verdict import Outcome
from router.fleet.directory import FleetDirectory
from router.fleet.poller import CapacityPoller, Polled, Standing
from router.fleet.roster import BULK_FROM
from router.fleet.watch import FleetWatch
from router.policy.decision import decide
from shared.breaker import BreakerRules
from shared.fleet import BackendSnapshot, BackendState, Breaker, Heartbeat, ServedModel, ThermalLevel, Zone
from shared.state.memory import MemoryStateStore
from shared.state.port import Report
from shared.testing.clock import ManualClock
from tests.router.policy.builders import MODEL, facts, policy

CLOUDS = (Polled("cloud-a", Zone.CLOUD, "http://a"), Polled("cloud-b", Zone.CLOUD, "http://b"))
MODELS = (ServedModel(model_id=MODEL, context_tokens=4_096),)


@dataclass
class StandingPoller:
    """A poller whose standings are set by hand."""

    polled: tuple[Polled, ...] = CLOUDS
    standings: dict[str, Standing] = field(default_factory=dict)
    on_change: Callable[[str], None] = lambda backend_id: None

    def listen(self, on_change: Callable[[str], None]) -> None:
        self.on_change = on_change

    def standing(self, backend_id: str) -> Standing:
        return self.standings.get(backend_id, Standing())

    def set(self, backend_id: str, standing: Standing) -> None:
        self.standings[backend_id] = standing
        self.on_change(backend_id)


class SayingAgain(MemoryStateStore):
    """Gives beats as a reader of Redis does: where one says what the one before it said, the content is the same."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock, ttl_s=60)
        self._given: dict[str, Report] = {}

    async def reports(self) -> tuple[Report, ...]:
        made = [self._as_given(report) for report in await super().reports()]
        self._given = {report.backend_id: report for report in made}
        return tuple(made)

    def _as_given(self, report: Report) -> Report:
        given = self._given.get(report.backend_id)
        if given is None or given.content.model_copy(update={"sequence": report.sequence}) != report.content:
            return report
        if given.sequence == report.sequence:
            return given
        return Report(given.content, report.received_ms, report.signed, report.sequence)


class World:
    """A directory and what it watches."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = SayingAgain(self.clock)
        self.watch = FleetWatch(self.store, self.clock, last_known_ms=15_000)
        self.poller = StandingPoller()
        domains = {"cloud-a": Access(rate_domain="acme"), "cloud-b": Access(rate_domain="acme")}
        self.health = Health(Ledgers(BreakerRules(failures=2)), Targets(domains, edge=Access()))
        self.directory = self.another()
        self.sequence = 0

    def another(self) -> FleetDirectory:
        """A directory that has seen nothing of what was before."""
        return FleetDirectory(self.watch, cast(CapacityPoller, self.poller), self.health, self.clock)

    async def beat(self, name: str, *, later_s: float = 0.001, **fields: Any) -> None:
        self.sequence += 1
        await self.clock.advance(later_s)
        values: dict[str, Any] = {"url": f"http://{name}", "state": BackendState.READY, "models": MODELS} | fields
        beat = Heartbeat(backend_id=name, instance="instance-a", sequence=self.sequence, **values)
        await self.watch.publish(beat)

    async def says_again(self, name: str, *, later_s: float = 0.001) -> None:
        """A beat as the last one of that agent, by way of the store."""
        kept = {report.backend_id: report.heartbeat for report in await self.store.reports()}
        if name in kept:
            self.sequence += 1
            await self.clock.advance(later_s)
            await self.store.publish(kept[name].model_copy(update={"sequence": self.sequence}))
        await self.watch.refresh()

    def backend(self, name: str) -> BackendSnapshot:
        found = self.directory.snapshot().backend(name)
        assert found is not None
        return found


@pytest.fixture
def world() -> World:
    return World()


async def test_a_fleet_that_stands_still_is_the_same_object(world: World) -> None:
    await world.beat("pi")
    fleet = world.directory.snapshot()
    await world.clock.advance(2)
    later = world.directory.snapshot()
    assert later.backends is fleet.backends and later.taken_ms == fleet.taken_ms + 2_000
    assert world.directory.view(later) is world.directory.view(later)


async def test_one_change_makes_one_backend_anew(world: World) -> None:
    for name in ("pi", "nano"):
        await world.beat(name)
    before = world.directory.snapshot()
    world.health.ledgers.of("pi").enter(0)
    after = world.directory.snapshot()
    assert world.backend("pi").in_flight == 1
    assert after.backend("nano") is before.backend("nano") and after.backend("cloud-a") is before.backend("cloud-a")
    assert before.backend("pi") is not after.backend("pi")
    assert world.directory.view(before) is None, "a view is of the last snapshot alone"


async def test_who_says_the_same_again_is_only_younger(world: World) -> None:
    for name in ("pi", "nano"):
        await world.beat(name)
    await world.says_again("pi")
    before = world.directory.snapshot()
    for _ in range(3):
        await world.says_again("pi", later_s=1)
        after = world.directory.snapshot()
        known, now = before.backend("pi"), after.backend("pi")
        assert known is not None and now == known._replace(received_ms=world.clock.now_ms())
        assert after.backend("nano") is before.backend("nano")
        assert world.directory.snapshot().backends is after.backends
        before = after


async def test_a_sign_of_life_by_way_of_the_store_lets_an_open_breaker_try_again(world: World) -> None:
    await world.beat("pi")
    await world.says_again("pi")
    world.directory.snapshot()
    ledger = world.health.ledgers.of("pi", "instance-a")
    for _ in range(2):
        ledger.enter(world.clock.now_ms())
        ledger.leave(Outcome.FAILED, world.clock.now_ms())
    assert world.backend("pi").breaker is Breaker.OPEN
    await world.says_again("pi")
    assert world.backend("pi").breaker is Breaker.HALF_OPEN


async def test_what_ends_by_time_ends_without_a_word(world: World) -> None:
    """A breaker that opened and a pause that was asked for are over when their time has passed."""
    await world.beat("pi")
    world.directory.snapshot()
    ledger = world.health.ledgers.of("pi")
    for _ in range(2):
        ledger.enter(world.clock.now_ms())
        ledger.leave(Outcome.FAILED, world.clock.now_ms())
    assert world.backend("pi").breaker is Breaker.OPEN
    world.health.rest("pi", for_ms=5_000, now_ms=world.clock.now_ms())
    assert world.backend("pi").cooling_until_ms is not None
    await world.clock.advance(2)
    assert world.backend("pi").breaker is Breaker.HALF_OPEN
    assert world.backend("pi").cooling_until_ms is not None
    await world.clock.advance(4)
    assert world.backend("pi").cooling_until_ms is None


async def test_streams_that_stand_still_show_without_a_word(world: World) -> None:
    """And the first that moves again is told."""
    await world.beat("pi")
    world.directory.snapshot()
    ledger = world.health.ledgers.of("pi")
    ledger.enter(world.clock.now_ms())
    ledger.began_reading(world.clock.now_ms())
    for _ in range(3):
        await world.clock.advance(4)
        assert world.backend("pi").breaker is Breaker.CLOSED
        ledger.moved(world.clock.now_ms())
    await world.clock.advance(10.002)
    assert world.backend("pi").breaker is Breaker.OPEN
    ledger.ended_reading()
    ledger.moved(world.clock.now_ms())
    assert world.backend("pi").breaker is Breaker.CLOSED


async def test_a_rate_domain_rests_as_a_whole(world: World) -> None:
    world.directory.snapshot()
    world.health.rest_domain_of("cloud-a", for_ms=3_000, now_ms=world.clock.now_ms())
    assert world.backend("cloud-b").cooling_until_ms == world.clock.now_ms() + 3_000


async def test_an_address_goes_back_to_its_former_holder(world: World) -> None:
    await world.beat("old", url="http://here")
    await world.clock.advance(1)
    await world.beat("new", url="http://here")
    assert [b.backend_id for b in world.directory.snapshot().backends] == ["cloud-a", "cloud-b", "new"]
    await world.beat("new", url="http://elsewhere")
    names = [b.backend_id for b in world.directory.snapshot().backends]
    assert names == ["cloud-a", "cloud-b", "new", "old"]


@pytest.mark.parametrize(
    "other", ["http://here/", "http://HERE", "http://here:80", "http://Here:80/"], ids=["slash", "case", "port", "all"]
)
async def test_fs_01_an_address_is_the_same_however_it_is_written(world: World, other: str) -> None:
    await world.beat("old", url="http://here")
    await world.beat("new", url=other)
    assert [b.backend_id for b in world.directory.snapshot().backends] == ["cloud-a", "cloud-b", "new"]
    await world.says_again("new")
    assert [b.backend_id for b in world.directory.snapshot().backends] == ["cloud-a", "cloud-b", "new"]


@pytest.mark.parametrize("url", ["http://here:81", "https://here", "http://here/sub", "http://there"])
async def test_another_address_is_another_device(world: World, url: str) -> None:
    await world.beat("old", url="http://here")
    await world.beat("new", url=url)
    assert [b.backend_id for b in world.directory.snapshot().backends] == ["cloud-a", "cloud-b", "new", "old"]


@pytest.mark.parametrize("turn", range(12))
async def test_fs_01_within_one_millisecond_the_last_to_report_has_the_address(world: World, turn: int) -> None:
    """Whatever the ids are: the clock cannot tell who came last."""
    for name in (former := f"pi-{turn}", latter := f"pi-{11 - turn}"):
        await world.beat(name, later_s=0, url="http://here")
    assert former != latter
    assert [b.backend_id for b in world.directory.snapshot().backends] == ["cloud-a", "cloud-b", latter]


@pytest.mark.parametrize("devices", [3, BULK_FROM + 3])
async def test_after_anything_that_happens_it_stands_as_a_new_one_would(world: World, devices: int) -> None:
    """And decides alike: what is carried over from change to change holds nothing that is no longer so."""
    draw, names = random.Random(7), [f"pi-{n}" for n in range(devices)]
    for name in names:
        await world.beat(name)
    world.directory.snapshot()
    for _ in range(150):
        for _ in range(draw.randint(1, 3)):
            await _something(world, draw, draw.choice(names))
        fleet, fresh = world.directory.snapshot(), _fresh(world)
        assert fleet.backends == fresh
        now_ms, request = world.clock.now_ms(), facts(prompt_tokens=draw.randint(1, 9_000))
        plain = decide(request, fleet, policy(), now_ms)
        assert decide(request, fleet, policy(), now_ms, world.directory.view(fleet)) == plain


def _fresh(world: World) -> tuple[BackendSnapshot, ...]:
    other = world.another()
    other._heard = dict(world.directory._heard)  # a report that is new to it would be a sign of life
    made = other.snapshot().backends
    changes = world.directory._changes
    world.watch.listen(changes.note, changes.note_sign)
    for source in (world.poller, world.health):
        source.listen(changes.note)
    return made


async def _something(world: World, draw: random.Random, name: str) -> None:
    """One of the things that happen to a fleet."""
    now_ms, ledger = world.clock.now_ms(), world.health.ledgers.of(name)
    match draw.randint(0, 13):
        case 0 | 1 | 2:
            url = f"http://{draw.choice(['pi-0', name, name])}"
            level, queued = draw.choice(list(ThermalLevel)), draw.choice([None, 0, 3])
            await world.beat(name, url=url, level=level, queued=queued, models=draw.choice([MODELS, MODELS, ()]))
        case 3:
            await world.watch.forget(name)
        case 4 | 5:
            ledger.enter(now_ms)
        case 6:
            if ledger.in_flight > 0:
                ledger.observe_first_token(draw.uniform(50, 900), 1)
                ledger.leave(draw.choice([Outcome.OK, Outcome.FAILED, Outcome.UNREACHABLE]), now_ms)
        case 7:
            world.health.rest(name, for_ms=draw.randint(1, 4_000), now_ms=now_ms)
            world.health.rest_domain_of(draw.choice([name, "cloud-a"]), for_ms=draw.randint(1, 4_000), now_ms=now_ms)
        case 8:
            state = draw.choice(list(BackendState))
            world.poller.set(draw.choice(["cloud-a", "cloud-b"]), Standing(state=state, models=MODELS))
        case 9:
            await world.clock.advance(draw.choice([0.2, 1, 5]))
            await world.watch.refresh()
        case _:
            await world.says_again(name)
