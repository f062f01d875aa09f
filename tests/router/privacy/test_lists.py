"""Lists: what only the word before a list names is found in every item, however the list is written."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from router.privacy.scanner import Scanner
from shared.openai.text import TextPosition, texts_of
from tests.router.privacy.test_tables import _IDS, _found

_COUNT = 30
_NAMES = [given for given in _IDS.items() if given[0] != ("mot de passe", "password")]
_OF_NUMBERS = [given for given in _NAMES if given[1].isdigit()]
_WRITINGS: dict[str, Callable[[str, list[str]], str]] = {
    "JSON": lambda name, items: json.dumps({"people": 3, name: items}, ensure_ascii=False),
    "JSON in lines": lambda name, items: json.dumps({name: items}, ensure_ascii=False, indent=2),
    "JSON in a string": lambda name, items: json.dumps({"a": json.dumps({name: items}, ensure_ascii=False)}),
    "Python": lambda name, items: f"{name.replace(' ', '_')} = {items!r}",
    "objects": lambda name, items: json.dumps({name: [{"label": "x", "value": i} for i in items]}, ensure_ascii=False),
    "YAML": lambda name, items: f"users:\n{name}:\n" + "".join(f"  - {item}\n" for item in items) + "end: 1",
    "Markdown": lambda name, items: f"All of one **{name}**:\n\n" + "\n".join(f"* `{item}`" for item in items),
    "numbered": lambda name, items: f"{name}:\r\n" + "\r\n".join(f"{n}. {item}" for n, item in enumerate(items, 1)),
}
_ROWS: dict[str, Callable[[str, list[str]], str]] = {
    "commas": lambda name, items: f"{name}: " + ", ".join(items),
    "words": lambda name, items: f"mine, by {name}: " + " or ".join(items) + " today",
}


@pytest.mark.parametrize("writing", _WRITINGS)
@pytest.mark.parametrize(("named", "value"), _NAMES, ids=lambda given: given[0] if len(given) == 2 else None)
def test_pi_07_what_names_a_list_is_found_in_every_item(
    scanner: Scanner, named: tuple[str, str], value: str, writing: str
) -> None:
    name, kind = named
    text = _WRITINGS[writing](name, [value] * _COUNT)
    found = scanner.scan(texts_of({"messages": [{"role": "user", "content": text}]})).entities
    where = {(e.start, e.end) for e in found if e.kind == kind and e.position == "messages[0].content"}
    assert len(where) >= _COUNT if writing != "JSON in a string" else where


@pytest.mark.parametrize("writing", _ROWS)
@pytest.mark.parametrize(("named", "value"), _OF_NUMBERS, ids=lambda given: given[0] if len(given) == 2 else None)
def test_pi_07_what_names_the_first_number_of_a_row_names_all(
    scanner: Scanner, named: tuple[str, str], value: str, writing: str
) -> None:
    name, kind = named
    text = _ROWS[writing](name, [value] * _COUNT)
    assert len({e for e in _found_at(scanner, text) if e[0] == kind}) == _COUNT


def _found_at(scanner: Scanner, text: str) -> set[tuple[str, int, int]]:
    return {(e.kind, e.start, e.end) for e in scanner.scan([TextPosition("t", text)]).entities}


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ({"passwords": ["x", "hunter2secret", "swordfish9"]}, "swordfish9"),
        ({"phones": ["none", "0171 2345678"]}, "0171 2345678"),
        ({"user": {"ssn": [123456789]}}, "123456789"),
        ({"tax": {"PESEL": ["-", "-", "44051401359"]}}, "44051401359"),
    ],
)
@pytest.mark.parametrize("is_text", [False, True])
def test_pi_07_a_list_of_a_body_is_named_by_its_key(
    scanner: Scanner, arguments: dict[str, object], value: str, is_text: bool
) -> None:
    """Arguments of a tool come as an object in the messages API and as a string elsewhere."""
    held = json.dumps(arguments) if is_text else arguments
    found = scanner.scan(texts_of({"messages": [{"role": "assistant", "content": [{"input": held}]}]}))
    assert found.complete
    assert any(e.end - e.start >= len(value) for e in found.entities)


@pytest.mark.parametrize(
    "text",
    [
        "Passwords must have:\n- at least twelve characters\n- one digit\n- no word of a dictionary",
        "The phone:\n- has a screen\n- costs 500 euro\n- weighs 180 g",
        '{"required": ["name", "phone", "password"], "token_ids": [17, 2048, 123456789, 987654321]}',
        "Compare tokens: 100,000, 200,000 and 300,000 were read.",
        "phones = []\nnumbers = [1234567, 2345678, 3456789]",
        "Keys: [up, down, left, right]",
        "The id numbers 17, 18 and 19 are free.",
        "Contact hours: 09:00, 12:00 and 17:00",
        "Call it with args: 1024, 2048, 4096",
        "Tokens:\n- hello\n- world",
        "tokens = ['hello', 'world', 'goodbye']",
        "secrets: [DB_PASSWORD, API_KEY]",
        "secrets:\n  - db-password\n  - source: api_key\n    target: /run/secrets/api_key",
        "Types of keys:\n1. public\n2. private\n3. session",
        "Phone numbers:\n- home\n- mobile\n- work",
        "codes: 404, 500, 503 and 504",
        "Error codes: 40401, 50012 or 50333",
        'secret_names = ["db-pass-1", "db-pass-2"]',
        'secret_arns = ["arn:aws:secretsmanager:eu-west-1:123456789012:secret:db-AbCdEf"]',
        "token_policies:\n- Default-2024\n- Admin-v2x9",
        "My PINs:\n1. are\n2. safe",
    ],
)
def test_lists_that_hold_nothing_are_left_alone(scanner: Scanner, text: str) -> None:
    assert _found(scanner, text) == []


_ODD = ("hunter2,x9", 'Blue7Sea"Horse42', "hunter2;Lives|x", "a1b2c3D4'x9")


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"columns": ["a", "password"], "rows": [["x, z", odd] for odd in _ODD]}),
        json.dumps({"passwords": [f"{odd}" for odd in _ODD if "'" not in odd and '"' not in odd]}),
        "a,password\n" + "\n".join(f'"x, z","{odd}"' for odd in _ODD if '"' not in odd),
        "passwords:\n" + "\n".join(f"- {odd}" for odd in _ODD),
    ],
)
def test_pv_03_signs_inside_a_value_leave_no_piece_of_it_outside(scanner: Scanner, text: str) -> None:
    """What is masked is what was found: a password that was cut at a comma travelled in part."""
    found = [text[start:end] for _, start, end in _found_at(scanner, text)]
    for odd in _ODD:
        written = json.dumps(odd)[1:-1] if text[0] == "{" else odd
        assert written not in text or any(written in value for value in found), odd
