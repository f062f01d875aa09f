"""Tables for a terminal: nothing is cut at any width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from shared.tables import Rows


def shown(rows: Rows, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(rows)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def table() -> Rows:
    rows = Rows("name", "state", "why")
    rows.add_row("edge-1", Text("ready"), "preferred_tier")
    rows.add_row("edge-2", "[draining]", "-")
    return rows


def test_what_fits_stands_side_by_side() -> None:
    assert shown(table(), 80) == [
        "name    state       why",
        "──────────────────────────────────",
        "edge-1  ready       preferred_tier",
        "edge-2  [draining]  -",
    ]


def test_what_does_not_fit_stands_below_with_its_name() -> None:
    assert shown(table(), 26) == [
        "name    state",
        "──────────────────",
        "edge-1  ready",
        "    why preferred_tier",
        "edge-2  [draining]",
    ]


@pytest.mark.parametrize("width", [8, 20, 33, 34, 35, 200])
def test_no_word_is_lost_at_any_width(width: int) -> None:
    text = "".join("".join(shown(table(), width)).split())
    assert all(word in text for word in ("edge-1", "ready", "preferred_tier", "edge-2", "[draining]"))


def test_wide_signs_count_as_two_cells() -> None:
    rows = Rows("name", "kind")
    rows.add_row("凤凰", "bird")
    assert shown(rows, 80)[2] == "凤凰  bird"
