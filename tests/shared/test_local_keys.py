"""Keys that programs of one home find, and that work from nowhere else."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from shared.keys import Scope, authenticate
from shared.local_keys import is_within_machine, local_key, offer, offered, withdraw


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path))
    return tmp_path


def test_keys_are_found_by_address_and_read_by_their_owner_alone(home: Path) -> None:
    keys = offer("0.0.0.0", 8080)
    for url in ("http://127.0.0.1:8080", "http://localhost:8080/v1", "http://[::1]:8080", "https://127.0.0.2:8080"):
        assert local_key(url, "commands") == keys.commands and local_key(url, "agent") == keys.agent
    for url in ("http://127.0.0.1:8081", "http://127.0.0.1", "http://192.168.1.5:8080", "http://x:y", "file:///", ""):
        assert local_key(url, "commands") is None
    [path] = (home / "local").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    elsewhere = offer("192.168.1.5", 8080)
    assert local_key("http://192.168.1.5:8080", "agent") == elsewhere.agent


def test_each_start_has_new_ones_and_an_older_end_takes_none_away() -> None:
    first = offer("127.0.0.1", 8080)
    second = offer("127.0.0.1", 8080)
    assert not set(first) & set(second)
    withdraw("127.0.0.1", 8080, first)
    assert offered("127.0.0.1", 8080) == second
    withdraw("127.0.0.1", 8080, second)
    assert offered("127.0.0.1", 8080) is None
    withdraw("127.0.0.1", 8080, second)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"commands": "x"}', '{"more": 1, "commands": "", "agent": ""}']
)
def test_a_damaged_file_holds_no_keys(home: Path, text: str) -> None:
    offer("127.0.0.1", 8080)
    [path] = (home / "local").iterdir()
    path.write_text(text)
    assert local_key("http://127.0.0.1:8080", "commands") is None


def test_what_each_may_do() -> None:
    keys = offer("127.0.0.1", 8080)
    commands = authenticate([f"Bearer {keys.commands}"], keys.known())
    agent = authenticate([f"Bearer {keys.agent}"], keys.known())
    assert commands.scopes == {Scope.INFERENCE, Scope.ADMIN} and agent.scopes == {Scope.FLEET_REPORT}


def test_which_connections_stay_within_the_machine() -> None:
    for peer in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "192.168.1.5"):
        assert is_within_machine((peer, 40000), ("192.168.1.5", 8080)), peer
    for peer in ("192.168.1.6", "::ffff:192.168.1.6", "fe80::1", "no address"):
        assert not is_within_machine((peer, 40000), ("192.168.1.5", 8080)), peer
    assert not is_within_machine(None, None)
    assert is_within_machine("", "/run/router.sock")
