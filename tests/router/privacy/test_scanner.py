"""What the scanner finds and what it leaves alone, to the character."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from router.privacy import scanner as scanner_module
from router.privacy.model import Classification
from router.privacy.recognisers.model import Recogniser, by_pattern
from router.privacy.scanner import Scanner
from shared.openai.text import TextPosition
from shared.privacy import PrivacyClass
from tests.router.privacy.specimens import CARD, FOUND, NOTHING


def _scan(scanner: Scanner, text: str) -> Classification:
    return scanner.scan([TextPosition("t", text)])


@pytest.mark.parametrize(("kind", "text", "covered"), FOUND)
def test_pi_01_03_05_13_specimens_are_found_with_the_exact_span(
    scanner: Scanner, kind: str, text: str, covered: str
) -> None:
    found = _scan(scanner, text)
    spans = {(e.kind, text[e.start : e.end]) for e in found.entities}
    assert (kind, covered) in spans
    assert found.complete
    assert found.privacy_class in (PrivacyClass.PERSONAL, PrivacyClass.SECRET)


@pytest.mark.parametrize(("why", "text"), NOTHING)
def test_look_alikes_are_left_alone(scanner: Scanner, why: str, text: str) -> None:
    found = _scan(scanner, text)
    assert [e.kind for e in found.entities] == [], why
    assert found.privacy_class is PrivacyClass.PUBLIC


@pytest.mark.parametrize("text", [f"{CARD} sk-proj-{'a1B2c3' * 5}", f"sk-proj-{'a1B2c3' * 5} {CARD}"])
def test_the_strictest_finding_decides(scanner: Scanner, text: str) -> None:
    assert _scan(scanner, text).privacy_class is PrivacyClass.SECRET


def test_entities_hold_no_value(scanner: Scanner) -> None:
    found = _scan(scanner, f"pay {CARD} now")
    assert "4111" not in repr(found)
    assert [(e.kind, e.position, e.start, e.end) for e in found.entities] == [("card", "t", 4, 23)]


@pytest.mark.parametrize("card", ["4111111111111111", "378282246310005"])
def test_pi_01_a_card_in_a_column_of_other_numbers_is_found(scanner: Scanner, card: str) -> None:
    """PI-01 kind: twenty numbers of its length that are no cards, before and behind it, and no word says what it is."""
    others = [str(10 ** (len(card) - 1) + 7919 * number) for number in range(20)]
    column = "\n".join([*others[:10], card, *others[10:]])
    start = column.index(card)
    assert ("card", start, start + len(card)) in [(e.kind, e.start, e.end) for e in _scan(scanner, column).entities]


@pytest.mark.parametrize("filler", ["lorem ipsum dolor ", "这是一段普通的文字。", "x = f(1, 2);\n"])
def test_pi_09_the_end_of_a_long_text_is_scanned_too(scanner: Scanner, filler: str) -> None:
    """PI-09: an email and a phone behind 20,000 characters, with offsets in the text as it was sent."""
    head = (filler * 20_000)[:20_000]
    text = f"{head} bob@example.org +49 170 1234567"
    found = _scan(scanner, text)
    assert [(e.kind, text[e.start : e.end]) for e in found.entities] == [
        ("email", "bob@example.org"),
        ("phone", "+49 170 1234567"),
    ]


@pytest.mark.parametrize("at", [0, 511, 512, 4_095, 65_530, 1_000_000, 1_999_900])
def test_pi_09_two_megabytes_are_scanned_whole_wherever_it_stands(scanner: Scanner, at: int) -> None:
    text = "a " * (at // 2) + CARD + " " + "b " * ((1_999_900 - at) // 2)
    found = _scan(scanner, text)
    assert [(e.start, e.end) for e in found.entities] == [(at // 2 * 2, at // 2 * 2 + len(CARD))]
    assert found.complete


def test_the_same_finding_is_reported_once(scanner: Scanner) -> None:
    """An encoding elsewhere in the text makes a second view of it: what both show is one finding."""
    found = _scan(scanner, f"{CARD} 100%25 &#32; \\u0041")
    assert [e.kind for e in found.entities] == ["card"]


@pytest.mark.parametrize("text", [f"{CARD} " * 10_000, "a@example.org " * 10_000])
def test_pi_11_more_findings_than_can_be_kept_are_unknown(scanner: Scanner, text: str) -> None:
    found = _scan(scanner, text)
    assert (found.privacy_class, found.complete, found.cause) == (PrivacyClass.UNKNOWN, False, "overflow")
    assert len(found.entities) == scanner_module.MAX_ENTITIES


def test_pi_11_more_text_than_the_limit_is_unknown() -> None:
    small = Scanner([], limit_chars=100)
    assert _scan(small, "a" * 100).complete
    found = small.scan([TextPosition("a", "a" * 60), TextPosition("b", "b" * 60)])
    assert (found.privacy_class, found.complete, found.cause) == (PrivacyClass.UNKNOWN, False, "overflow")


def test_pi_11_a_scan_that_runs_out_of_time_is_unknown_and_keeps_what_it_found(scanner: Scanner) -> None:
    asked = iter([False, False, False])
    found = scanner.scan(
        [TextPosition("a", CARD), *[TextPosition("b", "1 2 3") for _ in range(50)]],
        expired=lambda: next(asked, True),
    )  # fmt: skip
    assert (found.privacy_class, found.complete, found.cause) == (PrivacyClass.UNKNOWN, False, "timeout")
    assert found.kinds == {"card"}


_HOSTILE = {
    "digits": "4 ",
    "one number": "4",
    "addresses": "a@a.b1 ",
    "signs": "a@b.cd@",
    "account heads": "AB12 3456 7890 1234 ",
    "telephones": "+1 2 3 4 5 6 7 8 ",
    "tokens": "-eyJabcdefgh.",
    "dashes": "sk-abcdef",
    "servers": "server=a;pwd=a",
    "schemes": "a://b:c",
    "key heads": "-----BEGIN PRIVATE KEY",
    "percents": "%34",
    "table rows": "|4111111111111111",
    "wide columns": "4111      ",
    "glued keys": "_sk-ab_AKIA_hf_",
    "glued words": "abcdefghijklmnop-abcdefghijklmnop/",
    "glued addresses": "//a@b.com:x/",
    "words": "YWJjZGVmZ2hpamts ",
    "rows of a log": "x 12-34 7\n2024-01-15T",
    "rows of digits": "id 12 34\n56-78 9\n",
    "bearers": "bearer aws secret ssn tel ",
    "open lists": "phones: [1",
    "lists": 'phone": ["1234567", "x"], ',
    "bullets": "passwords:\n- a\n",
    "blank bullets": "passwords:\n                       - a",
    "numbers with commas": "phone 12, 34 and 5678 ",
    "open tags": "phone 1<b ",
    "tags": "1<b>2</td> <td>",
    "comments": "1<!-- ",
    "signs that open no tag": "1<",
    "items of a page": "<ul><li>password 1</li></ul>",
    "cells of a page": "<td> <p>1</p></td>",
    "lists of lists": 'ssn"], [["a"], ',
    "blank lists": 'ssn"],                    [',
    "hex": "e4b8ad 0a",
    "tag characters": "\U000e0031\U000e0032 1",
}


@pytest.mark.parametrize("unit", _HOSTILE.values(), ids=_HOSTILE)
def test_pi_11_the_time_of_a_hostile_text_grows_with_its_length_alone(scanner: Scanner, unit: str) -> None:
    """Four times the text takes about four times the work; sixteen would mean a quadratic pattern."""

    def cost(chars: int) -> float:
        text = [TextPosition("t", unit * (chars // len(unit)) + "x")]
        best = 1e9
        for _ in range(3):
            began = time.thread_time()
            scanner.scan(text)
            best = min(best, time.thread_time() - began)
        return best

    assert cost(80_000) < 10 * max(cost(20_000), 0.0005)


@pytest.mark.parametrize("unit", ["4 ", "a@a.b1 ", "AB12 3456 7890 1234 ", "+1 2 3 4 5 6 7 8 "])
def test_pi_11_a_hostile_text_stops_soon_after_its_time_is_over(scanner: Scanner, unit: str) -> None:
    """Time is asked for at least once every few hundred candidates, whichever recogniser is at work."""
    asked = 0

    def expired() -> bool:
        nonlocal asked
        asked += 1
        return asked > 8

    found = scanner.scan([TextPosition("t", unit * 20_000)] * 3, expired=expired)
    assert (found.privacy_class, found.cause) == (PrivacyClass.UNKNOWN, "timeout")
    assert asked == 9


def test_recognisers_are_a_table_that_can_be_given() -> None:
    only = Recogniser("badge", PrivacyClass.PERSONAL, (rb"badge [0-9]{3}",), by_pattern(re.compile(r"badge [0-9]{3}")))
    scanner = Scanner([only])
    assert _scan(scanner, "badge 007").kinds == {"badge"}
    assert _scan(scanner, CARD).privacy_class is PrivacyClass.PUBLIC


def test_one_scanner_serves_many_threads(scanner: Scanner) -> None:
    filler = "lorem ipsum dolor sit amet " * 2_000
    texts = [f"{filler}{CARD}" if index % 2 else filler for index in range(200)]
    with ThreadPoolExecutor(8) as pool:
        classes = list(pool.map(lambda text: _scan(scanner, text).privacy_class, texts))
    assert classes == [PrivacyClass.PERSONAL if index % 2 else PrivacyClass.PUBLIC for index in range(200)]


def test_texts_are_read_as_they_come(scanner: Scanner) -> None:
    """A walk that fails in the middle is the caller's error, not a clean text."""

    def broken() -> Iterator[TextPosition]:
        yield TextPosition("a", "clean")
        raise RecursionError

    with pytest.raises(RecursionError):
        scanner.scan(broken())


@pytest.mark.parametrize("sign", [",", ":", ";", "|", "+", "*", "~"])
def test_pi_01_any_one_sign_may_part_the_groups_of_a_number(scanner: Scanner, sign: str) -> None:
    for number in ("4111 1111 1111 1111", "3782 822463 10005", "DE89 3704 0044 0532 0130 00"):
        written = number.replace(" ", sign)
        found = _scan(scanner, f"take {written} please")
        assert [(e.start, e.end) for e in found.entities] == [(5, 5 + len(written))], written
    assert _scan(scanner, sign.join(CARD.replace(" ", ""))).kinds == {"card"}


@pytest.mark.parametrize("gap", [", ", " / ", "` `", '" "', ") (", "** **", " | ", "\n", "->", "…"])
def test_pi_01_any_signs_may_where_a_word_says_that_it_is_a_card(scanner: Scanner, gap: str) -> None:
    written = CARD.replace(" ", gap)
    assert _scan(scanner, f"my card is {written}.").kinds == {"card"}
    assert _scan(scanner, f"我的卡号是{written}。").kinds == {"card"}


@pytest.mark.parametrize(
    "text",
    [
        "[4111,1111,1111,1111]",
        "sizes = 1000,4111,1111,1111,1111",
        "4111,1111,1111,1111,9000",
        "4111, 1111, 1111, 1111",
        "4111,1111,1111,1112",
        "discard 4111, 1111, 1111, 1111",
        "DE89,3704,0044,0532,0130,01",
        "12:30:45:4111:1111:1111:1111",
    ],
)
def test_a_list_of_numbers_is_no_card(scanner: Scanner, text: str) -> None:
    assert not _scan(scanner, text).kinds
