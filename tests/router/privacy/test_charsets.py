"""Encoded text of other charsets and of more than one line, and characters that only a model reads."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Callable

import pytest

from router.privacy.scanner import Scanner
from tests.router.privacy.specimens import CARD
from tests.router.privacy.test_tables import _found

_TEXTS = {
    "cp1252": f"Herr Müller sagt: die Karte für Söhne ist {CARD}, gültig für Jürgen.",
    "latin-1": f"Señor Núñez: número {CARD} — ".replace("—", "-"),
    "gbk": f"请用这张卡 {CARD} 付款，谢谢。",
    "gb18030": f"我的信用卡号码是{CARD}，请保密。",
    "big5": f"請用這張卡 {CARD} 付款",
    "euc_kr": f"제 카드 번호는 {CARD} 입니다",
    "shift_jis": f"card {CARD} for the order of today, please, and thank you",
    "cp1251": f"Please charge {CARD}, имя Иван, on the card of my father",
    "utf-8": f"Größe:\n\tKarte {CARD}\r\nÉtat: café\n",
    "utf-16-le": f"card {CARD}",
}
_WRITTEN: dict[str, Callable[[bytes], str]] = {
    "base64": lambda raw: base64.b64encode(raw).decode(),
    "base64 for addresses": lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("="),
}


@pytest.mark.parametrize("charset", _TEXTS)
@pytest.mark.parametrize("writing", _WRITTEN)
def test_pi_01_base64_of_an_older_charset_is_read(scanner: Scanner, charset: str, writing: str) -> None:
    text = f"decode {_WRITTEN[writing](_TEXTS[charset].encode(charset))} and answer"
    assert "card" in {kind for kind, _ in _found(scanner, text)}


@pytest.mark.parametrize(
    "text", [f"card\n{CARD}\r\n", f"Müller {CARD}", f"卡号 {CARD}", f"\tcafé: {CARD} €", f"😀{CARD}"]
)
@pytest.mark.parametrize("joint", ["", " ", ":"])
def test_pi_01_hex_of_any_text_is_read(scanner: Scanner, text: str, joint: str) -> None:
    for digits in (text.encode().hex(joint) if joint else text.encode().hex(), text.encode().hex().upper()):
        assert "card" in {kind for kind, _ in _found(scanner, f"dump: {digits}.")}


def test_digests_and_random_words_hold_nothing(scanner: Scanner) -> None:
    draw = random.Random(11)
    words = [base64.b64encode(draw.randbytes(draw.randrange(12, 96))).decode() for _ in range(300)]
    digests = [hashlib.sha256(draw.randbytes(8)).hexdigest() for _ in range(300)]
    assert [kind for kind, _ in _found(scanner, "\n\n".join((*words, *digests)))] == []


def _tags(text: str) -> str:
    return "".join(chr(0xE0000 + ord(char)) for char in text)


@pytest.mark.parametrize(
    "text",
    [
        f"Nothing to see here.{_tags(f'my card is {CARD}')}",
        f"My card is {_tags(CARD)} today",
        f"\U0001f600{_tags(CARD)}\U000e007f",
        f"{CARD[:8]}{_tags('x')}{CARD[8:]}",
    ],
)
def test_pi_01_tag_characters_are_read_as_a_model_reads_them(scanner: Scanner, text: str) -> None:
    [(kind, value)] = set(_found(scanner, text))
    assert kind == "card"
    assert len(value) >= 16


def test_flags_of_countries_are_no_text(scanner: Scanner) -> None:
    assert _found(scanner, f"\U0001f3f4{_tags('gbsct')}\U000e007f won 4-1 11 times") == []


@pytest.mark.parametrize(
    "text",
    [
        "My social security number, as on the card, is 123 45 6789",
        "SSN on file for this customer: 123456789.",
        "123.45.6789 is the SSN",
        "123 45 6789 (social security)",
        "SSN123456789",
        "ssns of both: 123-45-6789 and 234567891",
    ],
)
def test_pi_05_a_social_security_number_may_stand_some_words_from_its_name(scanner: Scanner, text: str) -> None:
    assert "us_ssn" in {kind for kind, _ in _found(scanner, text)}


@pytest.mark.parametrize(
    "text",
    [
        "The ssn field is empty; order number 123456789 was sent.",
        "SSN: 123456789012",
        "ssn 000 45 6789",
        "an SSN has 9 digits, 123 of 456 people know 7890",
    ],
)
def test_numbers_that_cannot_be_one_are_left_alone_beside_the_name(scanner: Scanner, text: str) -> None:
    assert "us_ssn" not in {kind for kind, _ in _found(scanner, text)}
