"""Compiled patterns are kept between starts, and never trusted further than their hash."""

from __future__ import annotations

import stat
from pathlib import Path

import hyperscan
import pytest

from router.privacy import database
from router.privacy.database import HyperscanDatabase
from router.privacy.kept_patterns import KeptPatterns

PATTERNS = [(1, b"card"), (2, b"[0-9]{4}"), (2, b"iban")]
TEXT = b"card 4111"


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """One entry for each time that something was compiled."""
    seen: list[bytes] = []
    compiled = database._compiled

    def noted(module: object, expressions: list[bytes], kept: KeptPatterns | None) -> object:
        seen.append(b"|".join(expressions))
        return compiled(module, expressions, kept)

    monkeypatch.setattr(database, "_compiled", noted)
    return seen


def test_the_second_start_compiles_nothing(tmp_path: Path, compilations: list[bytes]) -> None:
    folder = tmp_path / "cache" / "scanner"
    first, second = (HyperscanDatabase(PATTERNS, KeptPatterns(folder)) for _ in range(2))
    assert len(compilations) == 1
    assert first.numbers_in(TEXT) == second.numbers_in(TEXT) == [1, 2]
    [kept] = folder.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_other_patterns_are_compiled_and_replace_what_was_kept(tmp_path: Path, compilations: list[bytes]) -> None:
    HyperscanDatabase(PATTERNS, KeptPatterns(tmp_path))
    other = HyperscanDatabase([*PATTERNS, (3, b"passport")], KeptPatterns(tmp_path))
    assert len(compilations) == 2
    assert other.numbers_in(b"passport") == [3]
    assert len(list(tmp_path.iterdir())) == 1


def _flipped(kept: bytes) -> bytes:
    return kept[:100] + bytes([kept[100] ^ 1]) + kept[101:]


@pytest.mark.parametrize("damage", [lambda kept: kept[:-1], lambda kept: kept[:20], _flipped, lambda _: b""])
def test_a_damaged_file_is_compiled_anew(tmp_path: Path, compilations: list[bytes], damage: object) -> None:
    """It would find less, without a word."""
    HyperscanDatabase(PATTERNS, KeptPatterns(tmp_path))
    [kept] = tmp_path.iterdir()
    kept.write_bytes(damage(kept.read_bytes()))  # type: ignore[operator]
    assert HyperscanDatabase(PATTERNS, KeptPatterns(tmp_path)).numbers_in(TEXT) == [1, 2]
    assert len(compilations) == 2


def test_what_the_engine_does_not_take_is_compiled_anew(tmp_path: Path, compilations: list[bytes]) -> None:
    """A whole file from another version of the engine, say."""
    expressions = [pattern for _, pattern in PATTERNS]
    KeptPatterns(tmp_path).keep(database._made_from(hyperscan, expressions), b"not a database" * 100)
    assert HyperscanDatabase(PATTERNS, KeptPatterns(tmp_path)).numbers_in(TEXT) == [1, 2]
    assert len(compilations) == 1


def test_a_disk_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = KeptPatterns(tmp_path / "file" / "folder")
    assert HyperscanDatabase(PATTERNS, kept).numbers_in(TEXT) == [1, 2]
