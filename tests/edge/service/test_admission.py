"""Slots and the line before them: order, limits, leaving at any moment, heat."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.service.admission import Admission
from edge.service.line import FairLine
from edge.service.wait import ANSWER, Work
from shared.errors import Draining, QueueFull
from shared.testing.clock import ManualClock
from tests.edge.service.harness import until


def _admission(slots: int = 1, queue_limit: int = 4) -> Admission:
    return Admission(slots=slots, queue_limit=queue_limit, clock=ManualClock())


@contextlib.asynccontextmanager
async def _holding(admission: Admission, need: int = 1) -> AsyncIterator[asyncio.Task[None]]:
    """A task that holds slots, or stands in the line for them, until the block ends."""

    async def hold() -> None:
        async with admission.slot(need):
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await asyncio.sleep(0)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_line_is_first_in_first_out() -> None:
    admission, order = _admission(queue_limit=10), []

    async def ask(number: int) -> None:
        async with admission.slot():
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(ask(number) for number in range(10)))
    assert order == list(range(10))
    assert (admission.busy, admission.queued) == (0, 0)


async def test_beyond_the_queue_the_estimate_says_when_to_come_back() -> None:
    """EC-01: 503 with position and estimate, from how long slots were held."""
    clock = ManualClock()
    admission = Admission(slots=1, queue_limit=2, clock=clock)
    async with admission.slot():
        await clock.advance(10)
    async with _holding(admission), _holding(admission), _holding(admission):
        with pytest.raises(QueueFull) as caught:
            async with admission.slot():
                pass
        assert caught.value.retry_after_s == 30  # ten seconds each, two wait and one more comes
        assert "2 requests wait" in caught.value.message
    assert (admission.busy, admission.queued) == (0, 0)


async def test_a_request_for_several_slots_is_not_overtaken() -> None:
    admission, order = _admission(slots=2, queue_limit=10), []

    async def ask(name: str, need: int) -> None:
        async with admission.slot(need):
            order.append(name)

    async with _holding(admission):
        asks = [asyncio.create_task(ask("wide", 2)), asyncio.create_task(ask("narrow", 1))]
        await until(lambda: admission.queued == 2)
        assert order == []
    await asyncio.gather(*asks)
    assert order == ["wide", "narrow"]


async def test_leaving_the_line_lets_the_next_one_through() -> None:
    admission = _admission(slots=2)
    async with _holding(admission), _holding(admission, 2) as wide:
        narrow = asyncio.create_task(_enter_once(admission))
        await until(lambda: admission.queued == 2)
        wide.cancel()
        await narrow
    assert (admission.busy, admission.queued) == (0, 0)


async def _enter_once(admission: Admission) -> None:
    async with admission.slot():
        pass


async def test_a_turn_that_comes_with_the_cancellation_is_given_back() -> None:
    """RY-01: the slot is handed over in the same moment as its receiver leaves."""
    admission = _admission()
    async with admission.slot():
        waiter = asyncio.create_task(_enter_once(admission))
        await until(lambda: admission.queued == 1)
    # The slot has just been handed over; the waiter has not run since.
    assert (admission.busy, admission.queued) == (1, 0)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    assert (admission.busy, admission.queued) == (0, 0)


async def test_heat_takes_slots_away_and_gives_them_back() -> None:
    admission = _admission(slots=3)
    admission.restrict(1)
    async with _holding(admission), _holding(admission):
        assert (admission.limit, admission.busy, admission.queued) == (1, 1, 1)
        admission.restrict(None)
        await until(lambda: admission.queued == 0)
        assert admission.busy == 2
    assert admission.busy == 0


async def test_a_wide_request_still_runs_while_only_one_slot_is_allowed() -> None:
    admission = _admission(slots=3)
    admission.restrict(1)
    async with asyncio.timeout(5), admission.slot(3):
        assert not admission.can_admit(1)
    assert admission.busy == 0


async def test_closing_turns_away_who_waits_and_who_comes() -> None:
    admission = _admission()
    async with _holding(admission):
        waiting = asyncio.create_task(_enter_once(admission))
        await until(lambda: admission.queued == 1)
        admission.close(lambda: Draining("going"))
        with pytest.raises(Draining):
            await waiting
        with pytest.raises(Draining):
            await _enter_once(admission)
        assert admission.busy == 1  # what runs goes on
        admission.open()
    await _enter_once(admission)
    assert (admission.busy, admission.queued) == (0, 0)


async def test_what_is_promised_passes_a_closed_door() -> None:
    """A list of texts that runs when the device turns critical is finished, and heat can have the engine swapped."""
    admission, promised = _admission(queue_limit=1), Work("text", is_promised=True)
    order: list[str] = []

    async def go_on(name: str, need: int = 1) -> None:
        async with admission.slot(need, work=promised):
            order.append(name)

    async with _holding(admission):
        new = asyncio.create_task(_enter_once(admission))
        await until(lambda: admission.queued == 1)
        back = [asyncio.create_task(go_on("text")), asyncio.create_task(go_on("swap"))]
        await until(lambda: admission.queued == 3)  # a full line is no reason either
        admission.close(lambda: Draining("hot"))
        with pytest.raises(Draining):
            await new
        assert admission.queued == 2
    await asyncio.gather(*back)
    await go_on("again")
    assert order == ["text", "swap", "again"]
    with pytest.raises(Draining):
        await _enter_once(admission)
    assert (admission.busy, admission.queued, admission.can_admit(1)) == (0, 0, False)


async def test_who_stays_does_not_wait_behind_one_who_had_to_go() -> None:
    admission = _admission(slots=2)
    async with _holding(admission), _holding(admission, 2) as wide:
        back = asyncio.create_task(_enter_promised(admission))
        await until(lambda: admission.queued == 2)
        admission.close(lambda: Draining("hot"))
        await back
        with pytest.raises(Draining):
            await wide


async def _enter_promised(admission: Admission) -> None:
    async with admission.slot(work=Work("text", is_promised=True)):
        pass


@pytest.mark.parametrize("seed", range(20))
async def test_nothing_stays_counted_whatever_happens(seed: int) -> None:
    """RY-01: any mix of widths, failures, cancellations and changes of the limit ends at zero."""
    draw = random.Random(seed)
    admission = _admission(slots=3, queue_limit=50)

    async def ask() -> None:
        with contextlib.suppress(RuntimeError, Draining):
            async with admission.slot(draw.randint(1, 3)):
                assert admission.busy <= 3
                for _ in range(draw.randint(0, 4)):
                    await asyncio.sleep(0)
                if draw.random() < 0.3:
                    raise RuntimeError

    tasks = [asyncio.create_task(ask()) for _ in range(50)]
    for task in tasks:
        await asyncio.sleep(0)
        if draw.random() < 0.4:
            task.cancel()
        if draw.random() < 0.2:
            admission.restrict(draw.choice([None, 1, 2]))
    admission.restrict(None)
    async with asyncio.timeout(10):
        await asyncio.gather(*tasks, return_exceptions=True)
    assert (admission.busy, admission.queued) == (0, 0)
    assert admission.can_admit(3)


async def _order(admission: Admission, asks: list[tuple[str, str | None]]) -> list[str]:
    """Owners in the order in which they were served, all of whom asked while the one slot was busy."""
    order: list[str] = []

    async def ask(owner: str, lane: str | None) -> None:
        async with admission.slot(owner=owner, lane=lane):
            order.append(owner)
            await asyncio.sleep(0)

    async with _holding(admission):
        tasks = []
        for owner, lane in asks:
            tasks.append(asyncio.create_task(ask(owner, lane)))
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    return order


async def test_keys_take_turns() -> None:
    """EC-01: nobody waits for another key's backlog."""
    admission = _admission(queue_limit=20)
    asks = [(owner, None) for owner in ("a", "a", "a", "a", "b", "c", "b")]
    assert await _order(admission, asks) == ["a", "b", "c", "a", "b", "a", "a"]


async def test_a_full_line_has_room_for_a_key_that_has_less_than_its_share() -> None:
    admission = _admission(queue_limit=4)

    async def ask(owner: str) -> str:
        async with admission.slot(owner=owner):
            return owner

    async with _holding(admission):
        greedy = [asyncio.create_task(ask("a")) for _ in range(4)]
        await until(lambda: admission.queued == 4)
        other = asyncio.create_task(ask("b"))
        await until(greedy[3].done)
        with pytest.raises(QueueFull) as displaced:
            greedy[3].result()
        assert displaced.value.details["position"] == 5
        second = asyncio.create_task(ask("b"))
        with pytest.raises(QueueFull):  # two and two would be fair; three and two is the most that is
            await ask("a")
        await until(lambda: greedy[2].done() or second.done())
        assert admission.queued == 4
    outcomes = await asyncio.gather(*greedy, other, second, return_exceptions=True)
    assert [outcome for outcome in outcomes if isinstance(outcome, str)] == ["a", "a", "b", "b"]
    assert (admission.busy, admission.queued) == (0, 0)


async def test_who_comes_back_for_the_next_part_is_not_turned_away_by_a_full_line() -> None:
    """Else a long list of texts, which gives its slot back after each, would fail in the middle on a busy device."""
    admission = _admission(slots=1, queue_limit=2)
    served: list[str] = []

    async def ask(owner: str, work: Work = ANSWER) -> None:
        async with admission.slot(owner=owner, work=work):
            served.append(owner)

    async with _holding(admission):
        first = [asyncio.create_task(ask("a")) for _ in range(2)]
        await asyncio.sleep(0)
        back = [asyncio.create_task(ask("a", Work("text", is_promised=True))) for _ in range(2)]
        await asyncio.sleep(0)
        assert admission.queued == 4
        newcomer = asyncio.create_task(ask("b"))  # takes the place of one who has none to keep
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await first[1]
    await asyncio.gather(first[0], *back, newcomer)
    assert sorted(served) == ["a", "a", "a", "b"]
    assert (admission.busy, admission.queued) == (0, 0)


async def test_the_refusal_states_the_place_and_the_wait() -> None:
    """EC-01: three seconds a place."""
    clock = ManualClock()
    admission = Admission(slots=1, queue_limit=4, clock=clock)
    async with admission.slot():
        await clock.advance(3)

    async def wait(owner: str) -> None:
        async with admission.slot(owner=owner):
            pass

    async with _holding(admission):
        waiting = [asyncio.create_task(wait(owner)) for owner in ("a", "a", "b", "b")]
        await until(lambda: admission.queued == 4)
        with pytest.raises(QueueFull) as caught:
            await wait("a")
        assert caught.value.details == {"position": 5, "wait_estimate_s": 15}
    await asyncio.gather(*waiting)


async def test_requests_of_one_lane_run_one_at_a_time_and_others_pass() -> None:
    admission = _admission(slots=3, queue_limit=10)
    running: list[str] = []
    most = 0

    async def ask(lane: str) -> None:
        nonlocal most
        async with admission.slot(lane=lane):
            running.append(lane)
            assert running.count("x") <= 1
            most = max(most, len(running))
            for _ in range(3):
                await asyncio.sleep(0)
            running.remove(lane)

    await asyncio.gather(*(ask(lane) for lane in "xxxxyz"))
    assert most == 3
    assert (admission.busy, admission.queued) == (0, 0)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 6)), max_size=40),
)
def test_the_line_serves_owners_in_turns(steps: list[tuple[str, int]]) -> None:
    """Between two turns of an owner who waits on, every other one who waits has one; each owner's own order stays."""
    line: FairLine[_Ask] = FairLine()
    served: list[tuple[_Ask, set[object]]] = []
    number = 0
    for owner, what in steps:
        if what < 4:
            place = line.position_of_next(owner)
            number += 1
            line.append(_Ask(owner, number))
            assert [each.number for each in line].index(number) + 1 == place
        elif len(line):
            first = next(iter(line))
            line.take(first)
            served.append((first, {each.owner for each in line}))
    for own in "abc":
        numbers = [ask.number for ask, _ in served if ask.owner == own]
        assert numbers == sorted(numbers)
    for (before, waiting), (after, _) in itertools.pairwise(served):
        assert before.owner != after.owner or waiting <= {before.owner}


@dataclass(frozen=True)
class _Ask:
    owner: str
    number: int
    stays: bool = False
