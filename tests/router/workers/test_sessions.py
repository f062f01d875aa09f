"""One session at several workers: a value has one placeholder at all of them, and each puts it back."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from router.privacy import placeholders as module
from router.privacy.answers import as_it_is
from router.privacy.classify import Classifier
from router.privacy.masking import Masker
from router.privacy.placeholders import Placeholders, Room, TooManyValues
from router.privacy.scanner import Scanner
from router.privacy.sessions import Sessions
from router.workers.sessions import MemberSessions, ParentSessions
from shared.clock import SystemClock
from shared.errors import StateUnavailable
from shared.openai.facts import Endpoint
from shared.privacy import PrivacyClass
from shared.testing.clock import ManualClock

ROOM = 1_000_000


class Parent:
    """The parent, asked as over a channel: by value, and after a pause."""

    def __init__(self, clock: ManualClock, *, limit: int = 100) -> None:
        self.sessions = Sessions(clock, b"", ttl_s=60, limit=limit)
        self._side = ParentSessions(self.sessions)
        self.gone = False

    async def ask(self, what: str, value: Any = None) -> Any:
        if self.gone:
            raise StateUnavailable("The parent of this worker is gone.")
        await asyncio.sleep(0)
        answer = await getattr(self._side, what)(orjson.loads(orjson.dumps(value)))
        await asyncio.sleep(0)
        return orjson.loads(orjson.dumps(answer))


def _worker(parent: Parent, clock: ManualClock) -> Sessions:
    """The sessions of one worker; all have the same key."""
    return Sessions(clock, b"key", ttl_s=60, limit=100, elsewhere=MemberSessions(parent))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def parent(clock: ManualClock) -> Parent:
    return Parent(clock)


async def _stand_ins(sessions: Sessions, *values: str, session: str = "s", said: str = "") -> tuple[list[str], Any]:
    known = await sessions.of(session, "alice").source.prepared([said], [("card", value) for value in values])
    return [known.stand_in("card", value) for value in values], known


async def test_a_value_has_one_placeholder_at_all_workers(parent: Parent, clock: ManualClock) -> None:
    one, two = _worker(parent, clock), _worker(parent, clock)
    assert (await _stand_ins(one, "4111 1111 1111 1111"))[0] == ["[CARD_1]"]
    assert (await _stand_ins(two, "5555 5555 5555 4444"))[0] == ["[CARD_2]"]
    names, known = await _stand_ins(one, "4111-1111-1111-1111", "5555555555554444")
    assert names == ["[CARD_1]", "[CARD_2]"]
    assert known.restored("[CARD_2] [CARD_1] [CARD_3]", as_it_is) == (
        "5555 5555 5555 4444 4111 1111 1111 1111 [CARD_3]"
    )


async def test_an_answer_may_say_what_another_worker_masked(parent: Parent, clock: ManualClock) -> None:
    one, two = _worker(parent, clock), _worker(parent, clock)
    await _stand_ins(one, "1", "2")
    _, known = await _stand_ins(two, "3")
    assert known.restored("[CARD_1][CARD_2][CARD_3]", as_it_is) == "123"


async def test_workers_that_ask_at_once_never_give_one_name_twice(parent: Parent, clock: ManualClock) -> None:
    workers = [_worker(parent, clock) for _ in range(4)]
    values = [f"value {n}" for n in range(40)]
    asked = [_stand_ins(workers[n % 4], value, values[(n * 7) % 40]) for n, value in enumerate(values)]
    given = {value: names[0] for value, (names, _) in zip(values, await asyncio.gather(*asked), strict=True)}
    assert len(set(given.values())) == 40
    _, known = await _stand_ins(workers[0], *values)
    assert all(known.restored(name, as_it_is) == value for value, name in given.items())


async def test_a_session_is_one_callers_at_every_worker(parent: Parent, clock: ManualClock) -> None:
    one, two = _worker(parent, clock), _worker(parent, clock)
    await one.of("s", "alice").source.prepared([], [("card", "1")])
    known = await two.of("s", "bob").source.prepared([], [])
    assert known.restored("[CARD_1]", as_it_is) == "[CARD_1]"
    assert await two.pin_of("s", "bob") is PrivacyClass.PUBLIC


async def test_what_a_caller_said_at_one_worker_is_given_out_at_none(parent: Parent, clock: ManualClock) -> None:
    one, two = _worker(parent, clock), _worker(parent, clock)
    await _stand_ins(one, said="my form has a field [CARD_1]")
    names, known = await _stand_ins(two, "4111")
    assert names == ["[CARD_2]"] and known.restored("[CARD_1]", as_it_is) == "[CARD_1]"


async def test_a_session_that_the_parent_forgot_begins_anew_and_old_answers_keep_their_values(
    clock: ManualClock,
) -> None:
    parent = Parent(clock, limit=1)
    worker = _worker(parent, clock)
    _, before = await _stand_ins(worker, "old")
    await _stand_ins(worker, "x", session="another")
    names, after = await _stand_ins(worker, "new")
    assert names == ["[CARD_1]"]
    assert (before.restored("[CARD_1]", as_it_is), after.restored("[CARD_1]", as_it_is)) == ("old", "new")


async def test_a_worker_gives_back_the_room_of_what_it_forgets(clock: ManualClock) -> None:
    parent, room = Parent(clock, limit=1), Room(10)
    shared = MemberSessions(parent)
    for n in range(50):
        source = shared.placeholders(b"s%d" % (n % 2), room)
        known = await source.prepared([], [("card", "12345")])
        assert known.restored("[CARD_1]", as_it_is) == "12345"
        room.give_back(source.chars)


async def test_a_full_map_masks_nothing(parent: Parent, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VALUES", 2)
    one, two = _worker(parent, clock), _worker(parent, clock)
    await _stand_ins(one, "1", "2")
    with pytest.raises(TooManyValues):
        await _stand_ins(two, "3")
    assert (await _stand_ins(two, "2"))[0] == ["[CARD_2]"]


async def test_names_that_callers_say_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TAKEN", 10)
    known = Placeholders()
    with pytest.raises(TooManyValues):
        for n in range(20):
            await known.prepared([f"[NAME_{n}]"], [])


async def test_pins_hold_at_every_worker_and_end_with_their_time(parent: Parent, clock: ManualClock) -> None:
    one, two = _worker(parent, clock), _worker(parent, clock)
    session = one.of("s", "alice")
    await one.settle_pin(session, PrivacyClass.SECRET)
    assert await two.pin_of("s", "alice") is PrivacyClass.SECRET
    other = two.of("s", "alice")
    await two.settle_pin(other, PrivacyClass.PUBLIC)
    assert other.pin is PrivacyClass.SECRET
    await clock.advance(61)
    assert await two.pin_of("s", "alice") is PrivacyClass.PUBLIC


async def test_without_its_parent_a_worker_masks_nothing(parent: Parent, clock: ManualClock, scanner: Scanner) -> None:
    """The body then stays on the edge."""
    classifier = Classifier(scanner, SystemClock(), timeout_s=5, workers=1, on_incomplete=lambda cause: None)
    try:
        masker, session = Masker(classifier), _worker(parent, clock).of("s", None)
        body = {"model": "m", "messages": [{"role": "user", "content": "My card is 4111 1111 1111 1111."}]}
        masked = await masker.mask(Endpoint.CHAT, body, session.source)
        assert masked is not None and b"[CARD_1]" in masked.raw
        parent.gone = True
        assert await masker.mask(Endpoint.CHAT, body, session.source) is None
    finally:
        classifier.close()
