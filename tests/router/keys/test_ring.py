"""Which keys are known: those of the register follow it within a second, a revoked one included."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from router.keys.book import KeyBook, MadeKey
from router.keys.ring import Keyring
from shared.errors import Unauthenticated
from shared.keys import ApiKey, Scope, hashed
from shared.state.register import FileRegister
from shared.testing.clock import ManualClock


def _register(path: Path, clock: ManualClock | None) -> FileRegister[KeyBook]:
    return FileRegister(path, KeyBook(), setting="router.keys_file", title="The register of keys", clock=clock)


def _made(name: str, clock: ManualClock, **more: float) -> MadeKey:
    return MadeKey(name, hashed(f"isk-{name}"), (Scope.INFERENCE,), clock.unix_s(), **more)  # type: ignore[arg-type]


async def test_a_revoked_key_is_locked_out_within_a_second(tmp_path: Path) -> None:
    clock = ManualClock()
    commands = _register(tmp_path / "keys.json", None)
    await commands.update(lambda book: book.with_key(_made("app", clock), clock.unix_s()))
    ring = Keyring((), clock, _register(tmp_path / "keys.json", clock))
    assert ring.authenticate(["Bearer isk-app"]).name == "app"
    await commands.update(lambda book: book.without("app", clock.unix_s()))
    await clock.advance(1)
    with pytest.raises(Unauthenticated):
        ring.authenticate(["Bearer isk-app"])
    assert ring.asks, "a router whose last key was revoked does not open up"


async def test_a_new_key_counts_within_a_second(tmp_path: Path) -> None:
    clock = ManualClock()
    commands = _register(tmp_path / "keys.json", None)
    ring = Keyring((), clock, _register(tmp_path / "keys.json", clock))
    assert not ring.asks
    await commands.update(lambda book: book.with_key(_made("app", clock), clock.unix_s()))
    await clock.advance(1)
    assert ring.asks and ring.authenticate(["Bearer isk-app"]).name == "app"


async def test_a_key_expires_at_its_time_and_not_at_the_next_look(tmp_path: Path) -> None:
    clock = ManualClock()
    commands = _register(tmp_path / "keys.json", None)
    made = _made("app", clock, expires_unix_s=clock.unix_s() + 0.5)
    await commands.update(lambda book: replace(book, keys=(made,)))
    fixed = ApiKey("fixed", hashed("isk-fixed"), frozenset({Scope.INFERENCE}))
    ring = Keyring([fixed], clock, _register(tmp_path / "keys.json", clock))
    assert ring.authenticate(["Bearer isk-app"]).name == "app"
    await clock.advance(0.5)
    with pytest.raises(Unauthenticated) as refused:
        ring.authenticate(["Bearer isk-app"])
    assert refused.value.code == "expired_api_key"
    assert ring.authenticate(["Bearer isk-fixed"]).name == "fixed"
