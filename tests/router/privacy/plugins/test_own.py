"""Patterns and words of the operator: what they find, what is refused, and that none can hold a scan up."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from router.privacy import linear
from router.privacy.linear import LinearPatterns, TooManyMatches
from router.privacy.plugins.own import pattern_recogniser, word_recogniser
from router.privacy.scanner import Scanner
from router.scanning import build_scanner
from router.settings import ScanSettings
from shared.errors import SettingsError
from shared.openai.text import TextPosition
from shared.privacy import PrivacyClass


def _found(scanner: Scanner, text: str) -> list[tuple[str, str]]:
    return [(e.kind, text[e.start : e.end]) for e in scanner.scan([TextPosition("t", text)]).entities]


def test_a_pattern_is_found_to_the_character_in_any_script() -> None:
    badge = pattern_recogniser(
        "badge", "EMP-[0-9]{3,6}|工号[0-9]+", PrivacyClass.SECRET, ignore_case=False, setting="s"
    )
    scanner = Scanner([badge])
    assert _found(scanner, "é EMP-1234, emp-1 工号77。EMP-999") == [
        ("badge", "EMP-1234"), ("badge", "工号77"), ("badge", "EMP-999"),
    ]  # fmt: skip
    assert _found(scanner, "ＥＭＰ－１２３") == [("badge", "ＥＭＰ－１２３")]
    assert scanner.scan([TextPosition("t", "EMP-1234")]).privacy_class is PrivacyClass.SECRET


def test_words_are_found_whole_in_any_case_and_anywhere_without_spaces() -> None:
    words = word_recogniser("project", ["Blue Fin", "凤凰", "Ω-7", " "], PrivacyClass.PERSONAL, setting="s")
    scanner = Scanner([words])
    text = "BLUE FIN, blue fins, a blue fin. 项目凤凰计划 Ω-7 ω-7x"
    assert [value for _, value in _found(scanner, text)] == ["BLUE FIN", "blue fin", "凤凰", "Ω-7"]


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", "x*", ""])
def test_a_pattern_that_cannot_be_linear_is_refused(pattern: str) -> None:
    with pytest.raises(SettingsError) as caught:
        pattern_recogniser("k", pattern, PrivacyClass.PERSONAL, ignore_case=False, setting="router.scan.patterns[0]")
    assert caught.value.param == "router.scan.patterns[0]"


def test_pi_11_no_pattern_holds_a_scan_up() -> None:
    scanner = Scanner([pattern_recogniser("k", "(a+)+b", PrivacyClass.PERSONAL, ignore_case=False, setting="s")])

    def cost(chars: int) -> float:
        text, best = [TextPosition("t", "a" * chars)], 1e9
        for _ in range(3):
            began = time.thread_time()
            scanner.scan(text)
            best = min(best, time.thread_time() - began)
        return best

    assert cost(80_000) < 12 * max(cost(20_000), 0.0005)


def test_pi_11_a_pattern_that_matches_everywhere_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "MAX_MATCHES", 100)
    patterns = LinearPatterns(["a"], ignore_case=False, setting="s")
    assert len(list(patterns.spans("a" * 100))) == 100
    with pytest.raises(TooManyMatches):
        list(patterns.spans("a" * 200))


def test_settings_build_them_all(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("Orion\n\n凤凰\n", encoding="utf-8")
    values: dict[str, Any] = {
        "patterns": [{"kind": "badge", "pattern": "emp-[0-9]{4}", "ignore_case": True}],
        "word_lists": [{"kind": "project", "words": ["Nova"], "file": words, "privacy_class": "secret"}],
    }
    scanner = build_scanner(ScanSettings(**values))
    assert dict(_found(scanner, "EMP-1234 nova 凤凰 orion 4111 1111 1111 1111")).keys() == {"badge", "project", "card"}


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"word_lists": [{"kind": "p", "file": "/no/such/file"}]}, "router.scan.word_lists[0]"),
        ({"word_lists": [{"kind": "p"}]}, "router.scan.word_lists[0]"),
        ({"plugins": [{"name": "presidia"}]}, "router.scan.plugins.name"),
        ({"plugins": [{"name": "spacy"}]}, "router.scan.plugins"),
    ],
)
def test_what_does_not_work_is_said_at_the_start(values: dict[str, Any], param: str) -> None:
    with pytest.raises(SettingsError) as caught:
        build_scanner(ScanSettings(**values))
    assert caught.value.param is not None and caught.value.param.startswith(param)
