"""Pages and results of tools: HTML is read as it is shown, and lists of JSON as the rows of a table."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from router.privacy.scanner import Scanner
from tests.router.privacy.test_tables import _IDS, _found

_ROWS = 20
_WRITINGS: dict[str, Callable[[list[str], list[list[str]]], str]] = {
    "columns and rows": lambda head, rows: json.dumps({"columns": head, "rows": rows}, ensure_ascii=False),
    "split": lambda head, rows: json.dumps(
        {"columns": head, "index": list(range(len(rows))), "data": rows}, ensure_ascii=False
    ),
    "a list of lists": lambda head, rows: json.dumps([head, *rows], ensure_ascii=False),
    "in lines": lambda head, rows: json.dumps({"fields": head, "values": rows}, ensure_ascii=False, indent=2),
    "HTML": lambda head, rows: (
        "<table class='t'><thead><tr>"
        + "".join(f"<th>{cell}</th>" for cell in head)
        + "</tr></thead>\n<tbody>"
        + "\n".join("<tr>" + "".join(f'<td align="left">{c}</td>' for c in row) + "</tr>" for row in rows)
        + "</tbody></table>"
    ),
    "HTML in lines": lambda head, rows: (
        "<TABLE>\n"
        + "\n".join(
            "  <TR>\n" + "\n".join(f"    <TD><b>{cell}</b></TD>" for cell in row) + "\n  </TR>" for row in (head, *rows)
        )
        + "\n</TABLE>"
    ),
}


@pytest.mark.parametrize("writing", _WRITINGS)
@pytest.mark.parametrize(("named", "value"), _IDS.items(), ids=lambda given: given[0] if len(given) == 2 else None)
def test_pi_07_what_the_head_of_a_column_names_is_found_in_every_row(
    scanner: Scanner, named: tuple[str, str], value: str, writing: str
) -> None:
    name, kind = named
    text = _WRITINGS[writing](["name", name, "city"], [["Ewa", value, "Łódź"]] * _ROWS)
    assert sum(found[0] == kind for found in _found(scanner, text)) >= _ROWS


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("4111 <b>1111</b> 1111 1111", "card"),
        ("<b>4111</b> <b>1111</b> <b>1111</b> <b>1111</b>", "card"),
        ("4111<wbr>1111<wbr/>1111<wbr />1111", "card"),
        ("4111<!-- a -->1111<!-- b -->1111<!-- c -->1111", "card"),
        ('<span class="x">4111</span><span>1111</span><span>1111</span><span>1111</span>', "card"),
        ("jan.novak<span>@</span>example.com", "email"),
        ("DE89 <strong>3704</strong> 0044 0532 0130 00", "iban"),
        ("SSN: <i>123</i>-45-6789", "us_ssn"),
        ("<p>SSN</p><p><code>123456789</code></p>", "us_ssn"),
    ],
)
def test_pi_01_tags_within_a_value_hide_nothing(scanner: Scanner, text: str, kind: str) -> None:
    assert kind in {found for found, _ in _found(scanner, text)}


@pytest.mark.parametrize(
    "text",
    [
        "<table><tr><td>4111</td><td>1111</td><td>1111</td><td>1111</td></tr></table>",
        "<ul><li>4111</li><li>1111</li><li>1111</li><li>1111</li></ul>",
        "H<sub>2</sub>O and x<sup>2</sup> + y<sup>2</sup>",
        '{"shape": [3, 2], "rows": [["a", "b"], ["c", "d"]], "token": ["x", "y"]}',
        '[["step", "token"], ["1", "hello"], ["2", "world"]]',
        "if (a < b && c > d) { x<10; y>20 }",
    ],
)
def test_pages_that_hold_nothing_are_left_alone(scanner: Scanner, text: str) -> None:
    assert _found(scanner, text) == []
