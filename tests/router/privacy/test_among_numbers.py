"""Numbers among numbers: one that is somebody's is found whatever stands beside it, in whatever piece it came."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest
from stdnum import ean

from router.privacy.scanner import Scanner
from shared.openai.text import TextPosition, texts_of

CARDS = {
    "16": "4111111111111111",
    "15": "378282246310005",
    "14, Diners": "30569309025904",
    "13, Visa": "4222222222222",
    "19, UnionPay": "6205500000000000004",
    "19, Maestro": "6304900017740292441",
}
IDS = {
    "ee_isikukood": "36805280109",
    "gr_amka": "01013099997",
    "no_fodselsnummer": "15108695088",
    "za_identity": "7503305044089",
    "fr_nir": "295109912611193",
    "ch_ahv": "7569217076985",
    "be_national": "85073003328",
    "cn_resident_id": "11010519491231002X",
    "card": "4222222222222",
}


def _found(scanner: Scanner, text: str) -> set[tuple[str, str]]:
    return {(e.kind, text[e.start : e.end]) for e in scanner.scan([TextPosition("t", text)]).entities}


def _kinds(scanner: Scanner, text: str) -> frozenset[str]:
    return scanner.scan([TextPosition("t", text)]).kinds


@pytest.mark.parametrize("decoys", [4, 12, 60])
@pytest.mark.parametrize(("kind", "number"), [*(("card", card) for card in CARDS.values()), *IDS.items()])
def test_pi_01_a_number_padded_with_others_of_its_length_is_found(
    scanner: Scanner, kind: str, number: str, decoys: int
) -> None:
    """PI-01 kind: rows before and behind it that fail the check, as a log has them and as someone would add them."""
    draw = random.Random(number)
    rows = [
        f"{draw.choice('123456789')}{draw.randrange(10 ** (len(number) - 1)):0{len(number) - 1}}" for _ in range(decoys)
    ]
    for text in ("\n".join([*rows, number, *rows]), ",".join([*rows, number, *rows]), f"a {rows[0]} b\nc {number} d"):
        assert (kind, number) in _found(scanner, text)


def test_an_article_number_is_no_card(scanner: Scanner) -> None:
    """German articles begin with 40 to 43, as a Visa number of thirteen digits does: their own check digit tells."""
    draw = random.Random(4)
    bodies = [f"4{draw.randrange(10**11):011}" for _ in range(400)]
    articles = [body + ean.calc_check_digit(body) for body in bodies]
    assert not _kinds(scanner, "\n".join(articles))


def test_cards_in_a_row_with_their_dates_are_found(scanner: Scanner) -> None:
    """A row of groups of four is no table of numbers: three cards, each before its month and year."""
    cards = ("4111 1111 1111 1111", "5555 5555 5555 4444", "4012 8888 8888 1881")
    text = " ".join(f"{card} 09{27 + n}" for n, card in enumerate(cards))
    assert {("card", card) for card in cards} <= _found(scanner, text)
    assert ("card", cards[0]) in _found(scanner, f"1234 5678 {cards[0]} 0927 0001 0002 0003")


def test_cards_in_the_rows_of_a_table_are_found_and_a_table_of_figures_is_left_alone(scanner: Scanner) -> None:
    draw = random.Random(9)

    def group() -> str:
        return str(draw.randrange(1_000, 10_000))

    figures = "\n".join(" ".join(group() for _ in range(9)) for _ in range(12))
    assert not _kinds(scanner, figures)
    cards = "\n".join(f"{group()} 4111 1111 1111 1111 {group()} {group()} {group()}" for _ in range(12))
    assert ("card", "4111 1111 1111 1111") in _found(scanner, cards)


_OVER_LINES = {
    "resident id": ("cn_resident_id", "我的身份证号是110105\n19491231\n002X，谢谢", "110105\n19491231\n002X"),
    "resident id, its last sign": ("cn_resident_id", "ID: 110105\n19491231\n002\nx", "110105\n19491231\n002\nx"),
    "card in three": ("card", "My card is 411111\n111111\n1111.", "411111\n111111\n1111"),
    "card in two": ("card", "Kreditkarte: 4111111111\n111111", "4111111111\n111111"),
    "card in groups": ("card", "card\n4111 11\n11 1111\n1111\nthanks", "4111 11\n11 1111\n1111"),
    "quoted in a mail": ("card", "> my card: 411111\n> 1111111\n> 111\n> bye", "411111\n> 1111111\n> 111"),
    "tax number": ("de_tax_id", "Steuer-ID 365\n742\n61809 liegt bei", "365\n742\n61809"),
    "pesel": ("pl_pesel", "PESEL:\n4405\n1401\n359", "4405\n1401\n359"),
    "social security": ("us_ssn", "social security number 123\n45\n6789", "123\n45\n6789"),
}  # fmt: skip


@pytest.mark.parametrize("case", _OVER_LINES)
def test_pi_03_a_named_number_over_several_lines_is_one_number(scanner: Scanner, case: str) -> None:
    kind, text, covered = _OVER_LINES[case]
    assert (kind, covered) in _found(scanner, text)


@pytest.mark.parametrize(
    "text",
    [
        "411111\n111111\n1111",
        "totals\n4111\n1111\n1111\n1111",
        "card counts\n" + "\n".join(str(n) for n in range(41111111, 41111140)),
        "my card: 411111\n111111\n1112",
        "the ids are 7\n8\n9",
    ],
)
def test_lines_of_figures_are_no_number(scanner: Scanner, text: str) -> None:
    assert not _kinds(scanner, text)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("card", "my card is 4111 1111 1111 1111"),
        ("iban", "DE89 3704 0044 0532 0130 00"),
        ("email", "write to bob@example.org"),
        ("password", "password: Hunter2!xy"),
        ("cn_resident_id", "身份证号11010519491231002X"),
    ],
)
def test_pi_07_a_value_in_base32_is_found(scanner: Scanner, kind: str, value: str) -> None:
    """In capitals and small letters, with its padding and without, glued to a name, and wrapped at 76 characters."""
    word = base64.b32encode(value.encode()).decode()
    assert len(word) >= 16
    bare = word.rstrip("=")
    long = base64.b32encode(("lorem ipsum " * 6 + value).encode()).decode()
    wrapped = "\n".join(long[at : at + 76] for at in range(0, len(long), 76))
    for written in (word, bare, word.lower(), bare.lower(), f"id_{bare}", f"/p/{bare}/x", f'{{"v":"{word}"}}', wrapped):
        assert kind in _kinds(scanner, written), written


@pytest.mark.parametrize("word", ["ABCDEFGHIJKLMNOPQRSTUVWX", "JBSWY3DPEBLW64TMMQQQ====", "MISSISSIPPIDELTABLUESBAND"])
def test_words_that_only_look_like_base32_are_left_alone(scanner: Scanner, word: str) -> None:
    assert not _kinds(scanner, f"see {word} there")


def _tool(content: Any, call_id: str = "c") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


_LEFT, _RIGHT = "4111 1111 ", "1111 1111"


@pytest.mark.parametrize(
    "messages",
    [
        [_tool([{"type": "text", "text": _LEFT}, {"type": "text", "text": _RIGHT}])],
        [_tool(_LEFT), _tool(_RIGHT, "d")],
        [_tool(_LEFT), _tool([{"type": "text", "text": _RIGHT}], "d")],
        [_tool('["4111 1111","1111 1111"]')],
        [_tool('{"a":"4111 1111","b":"1111 1111"}')],
        [_tool('{"number": "4111\\u00201111 1111\\n1111"}')],
        [_tool(_LEFT), {"role": "user", "content": _RIGHT}],
        [{"role": "function", "name": "f", "content": _LEFT}, {"role": "function", "name": "f", "content": _RIGHT}],
        [{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": _LEFT}]},
            {"type": "tool_result", "tool_use_id": "d", "content": [{"type": "text", "text": _RIGHT}]},
        ]}],
    ],
)  # fmt: skip
def test_pi_07_a_number_over_the_results_of_tools_is_one_number(
    scanner: Scanner, messages: list[dict[str, Any]]
) -> None:
    assert "card" in scanner.scan(texts_of({"model": "m", "messages": messages})).kinds


@pytest.mark.parametrize("kind", ["input", "output"])
def test_pi_07_so_is_one_over_the_results_of_the_responses_api(scanner: Scanner, kind: str) -> None:
    results = [{"type": "function_call_output", "call_id": c, "output": o} for c, o in (("c", _LEFT), ("d", _RIGHT))]
    turns = results if kind == "output" else [results[0], {"role": "user", "content": _RIGHT}]
    assert "card" in scanner.scan(texts_of({"model": "m", "input": turns})).kinds


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("is_kennitala", ["hello", "120174-", "3399"]),
        ("is_kennitala", ["see 7", "120174-3", "399", "thanks"]),
        ("br_cpf", ["my number", "111.444.", "777-35", "ok?"]),
        ("github_token", ["key", "ghp_a1B2c3D4e5F6g7H8i9J0", "k1L2m3N4o5P6q7R8", "it is"]),
        ("pl_pesel", ["PESEL", "4405", "1401", "359", "yes"]),
        ("card", ["hello", "４１１１１１１１", "１１１１１１１１", "谢谢"]),
    ],
)
def test_pi_07_what_stands_beside_a_cut_does_not_spoil_it(scanner: Scanner, kind: str, texts: list[str]) -> None:
    """In turns of one speaker, parts, results of tools and lists of words."""
    turns = [{"role": "user", "content": text} for text in texts]
    answered = [m for turn in turns for m in (turn, {"role": "assistant", "content": "Go on"})]
    parts = [{"role": "user", "content": [{"type": "text", "text": text} for text in texts]}]
    called = [
        m for n, text in enumerate(texts) for m in ({"role": "assistant", "content": "next"}, _tool(text, f"c{n}"))
    ]
    for messages in (turns, answered, parts, called):
        assert kind in scanner.scan(texts_of({"model": "m", "messages": messages})).kinds, messages
    assert kind in scanner.scan(texts_of({"model": "m", "x_own": texts})).kinds
