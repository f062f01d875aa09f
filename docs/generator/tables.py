"""Writes Markdown tables whose cells may hold any text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """One table, with a line end after it."""
    lines = [_row(columns), _row(["---"] * len(columns)), *(_row(row) for row in rows)]
    return "\n".join(lines) + "\n"


def code(text: str) -> str:
    """`text` as code; nothing stays nothing."""
    return f"`{text}`" if text else ""


def first_sentence(text: str | None) -> str:
    """A docstring's first paragraph as one line."""
    return " ".join((text or "").strip().partition("\n\n")[0].split())


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"
