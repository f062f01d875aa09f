"""Tables: what only the head of a column names is found in every row, and what the head calls something else is not."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from stdnum.ee import ik

from router.privacy.recognisers.column_heads import ColumnHeads, head_of
from router.privacy.scanner import Scanner
from shared.openai.text import TextPosition

_ROWS = 40
_PEOPLE = ("Jan Kowalski", "Maria López", "Ödön von Horváth")
_IDS = {
    ("PESEL", "pl_pesel"): "44051401359",
    ("Steuer-ID", "de_tax_id"): "36574261809",
    ("BSN", "nl_bsn"): "111222333",
    ("ИНН", "ru_inn"): "500100732259",
    ("マイナンバー", "jp_my_number"): "123456789018",
    ("passport_no", "passport"): "C01234567",
    ("SSN", "us_ssn"): "123456789",
    ("phone_number", "phone"): "4155552671",
    ("电话", "cn_mobile"): "13800138000",
    ("mot de passe", "password"): "soleil",
    ("密码", "password"): "swordfish",
    ("password", "password"): "hunter2",
    ("api_key", "password"): "f3b1c2d4e5f60718",
}
_WRITINGS: dict[str, Callable[[list[list[str]]], str]] = {
    "CSV": lambda rows: "\n".join(map(",".join, rows)),
    "CSV, all quoted": lambda rows: "\r\n".join(",".join(f'"{cell}"' for cell in row) for row in rows),
    "semicolons behind a sentence": lambda rows: "Here they are:\n" + "\n".join(map(";".join, rows)),
    "tabs": lambda rows: "\n".join(map("\t".join, rows)),
    "Markdown": lambda rows: "\n".join(f"| {' | '.join(row)} |" for row in (rows[0], ["---"] * 3, *rows[1:])),
    "a client of a database": lambda rows: "\n".join(
        [" | ".join(rows[0]), "----+----+----", *map(" | ".join, rows[1:])]
    ),
    "columns of blanks": lambda rows: "\n".join("".join(cell.ljust(24) for cell in row) for row in rows),
}


def _found(scanner: Scanner, text: str) -> list[tuple[str, str]]:
    return [(e.kind, text[e.start : e.end]) for e in scanner.scan([TextPosition("t", text)]).entities]


@pytest.mark.parametrize("writing", _WRITINGS)
@pytest.mark.parametrize(("named", "value"), _IDS.items(), ids=lambda given: given[0] if len(given) == 2 else None)
def test_pi_01_what_the_head_of_a_column_names_is_found_in_every_row(
    scanner: Scanner, named: tuple[str, str], value: str, writing: str
) -> None:
    """The last of many rows is far from the only word that says what it is."""
    head, kind = named
    rows = [["name", head, "city"], *([_PEOPLE[n % 3], value, "Łódź"] for n in range(_ROWS))]
    text = _WRITINGS[writing](rows)
    assert _found(scanner, text).count((kind, value)) == _ROWS


def test_a_cell_is_found_where_it_stands_in_an_encoded_table_too(scanner: Scanner) -> None:
    text = "name%2CPESEL%0AJan%2C44051401359%0AEwa%2C44051401359"
    assert _found(scanner, text).count(("pl_pesel", "44051401359")) == 2


@pytest.mark.parametrize(
    "text",
    [
        "name,pesel\nJan,44051401358\nEwa,44051401357",
        "step,token,score\n1,hello,0.5\n2,world,0.25\n3,goodbye,0.125",
        "user,password,active\nbob,,true\neve,********,true\nkim,<hidden>,false",
        "Please bring your passport, or\ntell us its number, 441234567 people asked",
        "phone,colour\nPixel 8,obsidian\nGalaxy S24,marble",
    ],
)
def test_tables_that_hold_nothing_are_left_alone(scanner: Scanner, text: str) -> None:
    assert _found(scanner, text) == []


def _estonians(draw: random.Random, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        number = f"{draw.choice('34')}{draw.randrange(100):02}{draw.randrange(1, 13):02}{draw.randrange(1, 29):02}"
        number += f"{draw.randrange(1_000):03}"
        found.append(number + ik.calc_check_digit(number + "0"))
    return found


@pytest.mark.parametrize("head", ["article", "order_id", "transactionId", "Rechnungsnummer", "订单号"])
@pytest.mark.parametrize("writing", ["CSV", "Markdown", "INSERT"])
def test_a_head_may_say_that_its_numbers_are_others(scanner: Scanner, head: str, writing: str) -> None:
    """Each of them has the date and the check digit of an Estonian; as `no. …` without a head, all would be found."""
    numbers = _estonians(random.Random(7), 30)
    if writing == "INSERT":
        values = ",\n".join(f"({n}, 'a, b', {number}, 9.5)" for n, number in enumerate(numbers))
        text = f"INSERT INTO items (n, name, {head}, price) VALUES {values};"
        other = text.replace(head, "owner")
    else:
        text = _WRITINGS[writing](
            [["n", head, "price"], *([str(n), number, "9.5"] for n, number in enumerate(numbers))]
        )
        other = text.replace(head, "owner")
    assert _found(scanner, text) == []
    assert {("ee_isikukood", number) for number in numbers} <= set(_found(scanner, other))


@pytest.mark.parametrize("head", ["order_id,isikukood", "order, owner", "invoice of (tax number)"])
def test_a_head_of_another_column_or_with_a_better_word_says_nothing(scanner: Scanner, head: str) -> None:
    [number] = _estonians(random.Random(8), 1)
    row = f"17,{number}" if "," in head else f"{number}"
    text = f"{head}\n{row}" if "," in head else f"{head},x\n{row},1"
    assert ("ee_isikukood", number) in _found(scanner, text)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("a,b", ["a", "b"]),
        ('"a, b";c', ["a, b", "c"]),
        ("| a | b |", ["", "a", "b", ""]),
        ("  PID   %CPU  NAME", None),
        ("PID   CPU  NAME", ["PID", "CPU", "NAME"]),
        ("1,2", None),
        ("a sentence", None),
        ("year 2024,b", None),
    ],
)
def test_a_head_is_a_row_of_names(line: str, names: list[str] | None) -> None:
    head = head_of(line)
    assert (None if head is None else head.names) == names


def test_heads_are_looked_up_by_place(scanner: Scanner) -> None:
    text = "x,y\n1,2\n\nno table\n\nInsert into t (p, q) values (1, 'a,b');\nu;v\n1;2;3"
    heads = ColumnHeads(text)
    assert [heads.over(text.index(at)) for at in ("1,2", "2\n", "no table", "a,b", "1;2")] == [
        "x",
        "y",
        None,
        "q",
        None,
    ]
