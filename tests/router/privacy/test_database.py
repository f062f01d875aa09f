"""Both engines say the same of every specimen, and neither takes trouble of its own for a clean text."""

from __future__ import annotations

import pytest

from router.privacy import database
from router.privacy.database import HyperscanDatabase, Re2Database, compiled
from router.privacy.recognisers import built_in
from router.privacy.scanner import Scanner, patterns_of
from shared.errors import SettingsError
from shared.openai.text import TextPosition
from tests.router.privacy.specimens import FOUND, NOTHING

PATTERNS = patterns_of(built_in())


def test_re2_and_hyperscan_agree_on_every_specimen(scanner: Scanner) -> None:
    first, second = scanner._database, Re2Database(PATTERNS)
    assert isinstance(first, HyperscanDatabase)
    for text in [each[1] for each in (*FOUND, *NOTHING)]:
        data = text.encode("ascii", "replace")
        assert first.numbers_in(data) == second.numbers_in(data), text


def test_the_scanner_works_with_the_second_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_ENGINES", database._ENGINES[1:])
    scanner = Scanner()
    for kind, text, _ in FOUND:
        assert kind in scanner.scan([TextPosition("t", text)]).kinds, text


def test_re2_without_enough_memory_is_an_error_and_no_clean_text(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Re2Database(PATTERNS)
    monkeypatch.setattr(small, "_set", _Silent())
    with pytest.raises(MemoryError):
        small.numbers_in(b"4111111111111111")


class _Silent:
    def Match(self, data: bytes) -> None:  # noqa: N802 - the engine's own name
        """What the engine answers when its memory does not suffice: the same as for no match."""


def test_without_any_engine_there_is_no_scanner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_ENGINES", (("no_such_module_here", HyperscanDatabase),))
    with pytest.raises(SettingsError):
        compiled([(0, b"a")])
