"""Predicted waits: kinds and sizes of turns, requests that come back, slots taken away, and what really happens."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.service.admission import Admission
from edge.service.wait import ANSWER, HORIZON_S, Paces, Part, Work, part_of, room_s, turn_s
from shared.errors import QueueFull
from shared.testing.clock import ManualClock
from tests.edge.service.harness import until

NEW = Part("new", 1, 0.0)


def _answers(*lasts_s: float, owner: str = "a") -> list[Part]:
    return [Part(owner, 1, each) for each in lasts_s]


def test_who_runs_and_who_waits_come_first() -> None:
    assert turn_s(_answers(4.0), _answers(10.0, 10.0), Part("a", 1, 0.0), slots=1) == 24
    assert turn_s([], [], NEW, slots=1) == 0
    assert turn_s(_answers(4.0), [], NEW, slots=2) == 0


def test_slots_are_handed_out_as_they_become_free() -> None:
    assert turn_s(_answers(4.0, 1.0), _answers(10.0), Part("a", 1, 0.0), slots=2) == 4
    assert turn_s(_answers(4.0, 1.0), [], Part("a", 2, 0.0), slots=2) == 4  # both of them


def test_slots_that_heat_took_away_stay_free() -> None:
    assert turn_s(_answers(1.0, 2.0, 9.0), [], NEW, slots=1) == 9


def test_a_list_of_texts_takes_a_turn_whenever_its_owner_has_one() -> None:
    """Its place in the line is one, and its turns are as many as those of everybody else."""
    texts = Part("b", 1, 1.0, later_turns=99, later_s=99.0)
    assert turn_s([texts], _answers(5.0, 5.0), Part("a", 1, 0.0), slots=1) == 1 + 5 + 5 + 1
    assert turn_s([texts], _answers(5.0, 5.0, owner="b"), Part("b", 1, 0.0), slots=1) == 11  # behind a newcomer


def test_nobody_looks_further_than_the_horizon() -> None:
    assert turn_s(_answers(1e9), [], NEW, slots=1) == HORIZON_S
    assert room_s([Part("a", 1, 1e9, 1, 1e9)], 1, slots=1) == HORIZON_S


def test_a_line_of_lists_has_room_when_one_of_them_ends() -> None:
    lists = [Part("a", 1, 1.0, later_turns=turns, later_s=float(turns)) for turns in (9, 19, 99)]
    assert room_s(lists, 1, slots=1) == 9 * 3
    assert room_s(lists, 2, slots=1) == 10 + 19 * 2  # the first is done by then
    assert room_s(lists, 0, slots=1) == 0
    assert room_s(_answers(5.0, 5.0), 1, slots=1) == 0  # whoever is next leaves the line with its first turn


def test_turns_last_in_proportion_to_their_size_and_kinds_do_not_mix() -> None:
    paces = Paces()
    assert paces.expected_s("text", 8) == paces.expected_s("answer", 1)  # a guess
    for _ in range(1000):
        paces.record(Work("text", 100), 0.25)
    paces.record(ANSWER, 30.0)
    assert paces.expected_s("text", 800) == pytest.approx(2.0)
    assert paces.expected_s("answer", 1) == 30


@pytest.mark.parametrize(("lasted_s", "left_s"), [(0, 10), (4, 6), (6, 6), (90, 90)])
def test_a_turn_past_its_middle_is_taken_to_be_half_over(lasted_s: float, left_s: float) -> None:
    paces = Paces()
    paces.record(ANSWER, 10.0)
    assert part_of(ANSWER, paces, owner=None, need=1, lasted_s=lasted_s).lasts_s == left_s


async def test_short_texts_do_not_make_the_line_look_short() -> None:
    """A long list of texts gave its slot back a hundred times a second; the answers that wait last as long as ever."""
    clock = ManualClock()
    admission = Admission(slots=1, queue_limit=2, clock=clock)
    async with admission.slot():
        await clock.advance(30)
    for at in range(200):
        async with admission.slot(work=Work("text", 10, 999 - at, 10 * (999 - at), is_promised=at > 0)):
            await clock.advance(0.01)
    async with admission.slot():
        waiting = [asyncio.create_task(_enter(admission)) for _ in range(2)]
        await until(lambda: admission.queued == 2)
        with pytest.raises(QueueFull) as caught:
            await _enter(admission)
    assert caught.value.details == {"position": 3, "wait_estimate_s": 90}
    assert caught.value.retry_after_s == 60  # longer ones are not followed
    await asyncio.gather(*waiting)


async def test_a_line_that_lists_fill_says_when_it_has_room() -> None:
    """Every place was served within three seconds, and none was free for minutes."""
    clock = ManualClock()
    admission = Admission(slots=1, queue_limit=2, clock=clock)
    lists = [asyncio.create_task(_texts(admission, clock, "a", 100)) for _ in range(3)]
    await until(lambda: admission.queued == 2)
    await clock.advance(1)
    with pytest.raises(QueueFull) as caught:
        await _enter(admission, "a")
    told_s = caught.value.details["wait_estimate_s"]
    began_ms = clock.now_ms()
    while admission.queued == 2:
        await clock.advance(1)
    assert isinstance(told_s, int)
    assert 0.95 < told_s * 1000 / (clock.now_ms() - began_ms) <= 1
    while not all(each.done() for each in lists):
        await clock.advance(1)


async def test_routers_are_told_while_no_slot_is_free() -> None:
    clock = ManualClock()
    admission = Admission(slots=1, queue_limit=2, clock=clock)
    async with admission.slot():
        await clock.advance(12.4)
    assert admission.told_wait_s is None
    async with admission.slot():
        assert admission.told_wait_s == 10
        await clock.advance(1)
        assert admission.told_wait_s == 10  # to one digit, or each report would be another one
        admission.close(lambda: QueueFull("hot"))
        assert admission.told_wait_s is None


async def test_routers_are_told_how_long_turns_last() -> None:
    clock = ManualClock()
    admission = Admission(slots=1, queue_limit=2, clock=clock)
    assert admission.told_turn_s is None
    async with admission.slot(work=Work("texts", size=40)):
        await clock.advance(80)
    assert admission.told_turn_s is None  # texts say nothing of answers
    async with admission.slot():
        await clock.advance(2.345)
    assert admission.told_turn_s == 2.3


@pytest.mark.parametrize("failure", [QueueFull("failed"), asyncio.CancelledError(), GeneratorExit()], ids=repr)
async def test_a_run_of_turns_that_were_cut_off_is_no_short_line(failure: BaseException) -> None:
    """EC-01: clients that leave and requests that fail at once say nothing of how long the others take."""
    clock = ManualClock()
    admission = Admission(slots=1, queue_limit=8, clock=clock)

    async def cut(after_s: float) -> None:
        with contextlib.suppress(type(failure)):
            async with admission.slot():
                await clock.advance(after_s)
                raise failure

    await cut(0.0)
    assert admission.told_turn_s is None
    async with admission.slot():
        await clock.advance(10)
    for _ in range(50):
        await cut(0.1)
    assert admission.told_turn_s == 10
    async with admission.slot():
        assert admission.told_wait_s == 10
    await cut(60)  # it would have lasted that long at least
    assert 10 < (admission.told_turn_s or 0) <= 60
    assert admission.busy == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 50), st.floats(0, 1e5)), min_size=1, max_size=30))
def test_no_turn_that_was_cut_off_makes_another_look_shorter(turns: list[tuple[bool, int, float]]) -> None:
    paces = Paces()
    for was_cut, size, held_s in turns:
        before_s, work = paces.expected_s("text", 10), Work("text", size=size)
        if was_cut:
            paces.record_cut(work, held_s)
            assert paces.expected_s("text", 10) >= before_s * (1 - 1e-9)
        else:
            paces.record(work, held_s)


@pytest.mark.parametrize("seed", range(20))
async def test_what_is_predicted_happens(seed: int) -> None:
    """Where every turn lasts as long as the ones before, whatever the owners, lists and slots."""
    draw = random.Random(seed)
    clock = ManualClock()
    admission = Admission(slots=draw.randint(1, 3), queue_limit=100, clock=clock)
    async with admission.slot(work=Work("text")):
        await clock.advance(1)
    tasks = []
    for _ in range(draw.randint(1, 8)):
        tasks.append(asyncio.create_task(_texts(admission, clock, draw.choice("abc"), draw.choice([1, 1, 2, 30]))))
        await asyncio.sleep(0)
    owner, asked_ms = draw.choice("abc"), clock.now_ms()
    predicted_s = admission.wait_s(owner)
    newcomer = asyncio.create_task(_enter(admission, owner))
    await asyncio.sleep(0)
    while not newcomer.done():
        await clock.advance(1)
    assert (clock.now_ms() - asked_ms) / 1000 == predicted_s
    while not all(each.done() for each in tasks):
        await clock.advance(1)
    assert (admission.busy, admission.queued) == (0, 0)


async def _enter(admission: Admission, owner: str | None = None) -> None:
    async with admission.slot(owner=owner):
        pass


async def _texts(admission: Admission, clock: ManualClock, owner: str, turns: int) -> None:
    """A list of texts that take a second each."""
    for at in range(turns):
        left = turns - 1 - at
        async with admission.slot(owner=owner, work=Work("text", 1, left, left, is_promised=at > 0)):
            await clock.sleep(1)
