"""Pages and results of tools: HTML is read as it is shown, and lists of JSON as the rows of a table."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from router.privacy.scanner import Scanner
from shared.openai.text import TextPosition
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


@pytest.mark.parametrize(
    "text",
    [
        "if (x1<y) return;",
        "for (i = 0; i2<n; i++) {}",
        "p1<p2 and p3<p4, or mail@ <b",
        "1<!-- not closed",
        "<table><tr><th>Field</th><th>Password &amp; PIN</th></tr><tr><td>A</td><td>none (1)</td></tr>"
        "<tr><td>B</td><td>phones: [12345, 23456]</td></tr></table><ul><li>x1</li></ul>",
    ],
)
@pytest.mark.parametrize("nested", [0, 1, 2])
def test_pi_11_code_and_pages_are_scanned_to_their_end(scanner: Scanner, text: str, nested: int) -> None:
    """A sign that opens no tag makes no page of a text, and a page with a table of lists is no deeper than a text."""
    for _ in range(nested):
        text = json.dumps({"text": text})
    found = scanner.scan([TextPosition("t", text)])
    assert (found.complete, found.entities) == (True, ())


@pytest.mark.parametrize(
    ("text", "kind", "count"),
    [
        (
            "<table><thead><tr><th></th><th>a</th><th>ssn</th></tr></thead>"
            + "<tr><th>0</th><td></td><td>123456789</td></tr>\n" * _ROWS
            + "</table>",
            "us_ssn",
            _ROWS,
        ),
        (
            "<table><tr><td><p>name</p></td><td><p>password</p></td></tr>"
            + "<tr><td><p>x y</p></td><td>\n<p><span>hunter2</span></p></td></tr>" * _ROWS,
            "password",
            _ROWS,
        ),
        ("<p>Passwords:</p><ul><li>hunter2secret</li><li>sword9fish</li></ul>", "password", 2),
        ("<dl><dt>Password</dt><dd>hunter2secret</dd><dt>PIN</dt><dd>4711</dd></dl>", "password", 2),
        (
            "&lt;table&gt;&lt;tr&gt;&lt;th&gt;a&lt;/th&gt;&lt;th&gt;ssn&lt;/th&gt;&lt;/tr&gt;"
            + "&lt;tr&gt;&lt;td&gt;b&lt;/td&gt;&lt;td&gt;123456789&lt;/td&gt;&lt;/tr&gt;" * _ROWS,
            "us_ssn",
            _ROWS,
        ),
        (
            "<table><tr><th style='" + "mso:x;" * 100 + "'>a</th><th>ssn</th></tr>"
            + ("<tr><td style='" + "mso:x;" * 100 + "'>b</td><td>123456789</td></tr>") * _ROWS,
            "us_ssn",
            _ROWS,
        ),
    ],
)  # fmt: skip
def test_pi_07_cells_and_items_of_real_pages_keep_their_names(
    scanner: Scanner, text: str, kind: str, count: int
) -> None:
    """As data frames, offices and mails write them: with empty cells, blocks within cells, and long styles."""
    found = {(e.start, e.end) for e in scanner.scan([TextPosition("t", text)]).entities if e.kind == kind}
    assert len(found) == count
