"""A session remembers the strictest class and its placeholders, for its caller alone and for a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.privacy import sessions as sessions_module
from router.privacy.placeholders import TooManyValues
from router.privacy.sessions import Session, Sessions
from shared.privacy import PrivacyClass, is_stricter
from shared.testing.clock import ManualClock


def _sessions(clock: ManualClock, *, limit: int = 100) -> Sessions:
    return Sessions(clock, b"key", ttl_s=60, limit=limit)


@given(st.lists(st.sampled_from(PrivacyClass)))
def test_a_pin_only_ever_tightens(found: list[PrivacyClass]) -> None:
    session = Session()
    for each in found:
        before = session.pin
        session.tighten(each)
        assert not is_stricter(before, session.pin)
        assert not is_stricter(each, session.pin)


def test_a_session_belongs_to_its_caller() -> None:
    sessions = _sessions(ManualClock())
    sessions.of("s", "alice").tighten(PrivacyClass.SECRET)
    assert sessions.of("s", "bob").pin is PrivacyClass.PUBLIC
    assert sessions.of("s", None).pin is PrivacyClass.PUBLIC
    assert sessions.of("s", "alice").pin is PrivacyClass.SECRET
    assert sessions.of("s", "alice").placeholders is not sessions.of("s", "bob").placeholders


def test_without_an_id_nothing_is_remembered() -> None:
    sessions = _sessions(ManualClock())
    sessions.of(None, "alice").tighten(PrivacyClass.SECRET)
    assert sessions.of(None, "alice").pin is PrivacyClass.PUBLIC
    assert len(sessions) == 0


async def test_silence_ends_a_session_and_use_keeps_it() -> None:
    clock = ManualClock()
    sessions = _sessions(clock)
    sessions.of("s", None).tighten(PrivacyClass.PERSONAL)
    await clock.advance(50)
    assert await sessions.pin_of("s", None) is PrivacyClass.PERSONAL
    assert sessions.of("s", None).pin is PrivacyClass.PERSONAL
    await clock.advance(50)
    assert sessions.of("s", None).pin is PrivacyClass.PERSONAL
    await clock.advance(61)
    assert await sessions.pin_of("s", None) is PrivacyClass.PUBLIC
    assert sessions.of("s", None).pin is PrivacyClass.PUBLIC
    assert len(sessions) == 1


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> int:
    """A bound that is reached sooner."""
    monkeypatch.setattr(sessions_module, "VALUE_CHARS", 64 * 1024)
    return sessions_module.VALUE_CHARS


def test_the_longest_silent_session_makes_room_and_gives_its_room_back(bound: int) -> None:
    sessions = _sessions(ManualClock(), limit=2)
    value = "v" * 1_000
    for number in range(3 * bound // len(value)):
        sessions.of(f"s{number}", None).placeholders.stand_in("key", value)
    assert len(sessions) == 2


def test_values_of_all_sessions_have_one_bound(bound: int) -> None:
    sessions = _sessions(ManualClock(), limit=10_000)
    value, kept = "v" * 1_000, 0
    try:
        for number in range(1_000):
            sessions.of(f"s{number}", None).placeholders.stand_in("key", value)
            kept += 1
    except TooManyValues:
        assert kept == bound // len(value)
    else:
        raise AssertionError("the values of sessions have no bound")
