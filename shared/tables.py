"""Shows rows whole at any width: what finds no place beside the rest stands below its row, with its name."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.text import Text

_GAP = 2
_INDENT = 4
_NOTHING = ("", "-")


class Rows:
    """A table for a terminal. Nothing is cut and no column is squeezed: columns from the left are shown side by side as
    long as they fit, and the others as `name value` under each row."""

    def __init__(self, *columns: str) -> None:
        self._columns = columns
        self._rows: list[tuple[Text, ...]] = []

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return len(self._rows)

    def add_row(self, *cells: str | Text) -> None:
        """One more row, with a cell for each column; text is shown as it is, without markup."""
        self._rows.append(tuple(_on_one_line(cell) for cell in cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Lines for rich, as wide as `options` allow."""
        widths = [
            max([cell_len(name), *(cell_len(row[at].plain) for row in self._rows)])
            for at, name in enumerate(self._columns)
        ]
        beside = _fitting(widths, options.max_width)
        yield _line([Text(name) for name in self._columns[:beside]], widths)
        yield Text("─" * min(sum(widths[:beside]) + _GAP * (beside - 1), options.max_width), no_wrap=True)
        for row in self._rows:
            yield _line(row[:beside], widths)
            below = [
                Text(f"{name} ", style="dim") + cell if name else cell
                for name, cell in zip(self._columns[beside:], row[beside:], strict=True)
                if cell.plain not in _NOTHING
            ]
            if below:
                yield Padding(Text("  ").join(below), (0, 0, 0, _INDENT))


def _fitting(widths: list[int], room: int) -> int:
    """How many columns from the left fit into `room` cells; one at least."""
    taken = 0
    for count, width in enumerate(widths):
        taken += width + (_GAP if count else 0)
        if taken > room:
            return max(count, 1)
    return len(widths)


def _line(cells: list[Text] | tuple[Text, ...], widths: list[int]) -> Text:
    """Cells at the begin of their columns; nothing stands behind the last."""
    line = Text(no_wrap=True, overflow="ignore")
    for at, cell in enumerate(cells):
        line.append_text(cell)
        if at + 1 < len(cells):
            line.append(" " * (widths[at] - cell_len(cell.plain) + _GAP))
    return line


def _on_one_line(cell: str | Text) -> Text:
    text = Text(cell) if isinstance(cell, str) else cell
    return Text(", ").join(text.split("\n")) if "\n" in text.plain else text
