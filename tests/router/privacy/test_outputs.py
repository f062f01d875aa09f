"""Answers that are scanned while they come: findings are replaced in any split, and what is held back is bounded."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.privacy.model import Classification
from router.privacy.outputs import MAX_HELD_CHARS, TAIL_CHARS, AnswerScan
from router.privacy.scanner import Scanner
from shared.errors import StreamBroken
from shared.privacy import PrivacyClass

KEY = "sk-proj-" + "a1B2c3D4e5" * 6
PRIVATE = "-----BEGIN PRIVATE " + "KEY-----\nMIIEvQ\nabcd12\n-----END PRIVATE " + "KEY-----"
SAID = (
    f"Card 4111 1111 1111 1111, mail bob@example.org, key {KEY} and\n{PRIVATE}\n"
    "Please call (415) 555-2671. 谢谢13800138000。Bye!"
)
REPLACED = "Card [CARD], mail [EMAIL], key [OPENAI_KEY] and\n[PRIVATE_KEY]\nPlease call [PHONE]. 谢谢[CN_MOBILE]。Bye!"


def _read(scanner: Scanner, pieces: list[str]) -> tuple[str, list[str]]:
    found: list[str] = []
    answer = AnswerScan(scanner, found.append)
    return "".join([*map(answer.feed, pieces), answer.end()]), found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 40), max_size=120))
def test_findings_are_replaced_in_any_split(scanner: Scanner, sizes: list[int]) -> None:
    pieces, at = [], 0
    for size in [*sizes, len(SAID)]:
        pieces.append(SAID[at : at + size])
        at += size
    text, found = _read(scanner, pieces)
    assert text == REPLACED
    assert sorted(found) == ["card", "cn_mobile", "email", "openai_key", "phone", "private_key"]


def test_clean_text_goes_on_but_for_a_short_tail(scanner: Scanner) -> None:
    answer = AnswerScan(scanner, lambda kind: None)
    said, passed = "", ""
    for word in ("the quick brown fox jumps over the lazy dog ", "我们今天去公园散步。") * 30:
        said += word
        passed += answer.feed(word)
        assert len(said) - len(passed) <= TAIL_CHARS + 48
    assert passed + answer.end() == said


@pytest.mark.parametrize("head", ["sk-proj-", "-----BEGIN PRIVATE " + "KEY-----\n"])
def test_a_finding_without_an_end_is_dropped_to_its_end_in_bounded_memory(scanner: Scanner, head: str) -> None:
    found: list[str] = []
    answer = AnswerScan(scanner, found.append)
    out = answer.feed("see " + head)
    for _ in range(4 * MAX_HELD_CHARS // 1000):
        out += answer.feed("a1B2c3D4e5" * 100)
        assert len(answer._held) <= MAX_HELD_CHARS + 2_000
    out += answer.end()
    assert "a1B2c3D4e5" not in out
    assert found


def test_an_answer_that_cannot_be_scanned_breaks_off() -> None:
    class Failing:
        def scan(self, texts: object, *, expired: object = None) -> Classification:
            return Classification(PrivacyClass.UNKNOWN, (), complete=False, cause="overflow")

    answer = AnswerScan(Failing(), lambda kind: None)
    with pytest.raises(StreamBroken):
        answer.feed("word " * 40)
