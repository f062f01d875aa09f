"""`isthmus loadtest compare A B`: two runs side by side."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from loadtests.compare import Compared

_ALIKE = ("scenario", "loop", "users", "rate_per_s", "shape", "duration_s", "model", "route", "faults_asked")


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="Folder of the first run.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Folder of the second run.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> int:
    """Show two runs side by side: B relative to A, with 95 % confidence intervals.

    An interval that leaves 1.00 out is a difference that chance alone does not explain. Exits with 1 when one of the
    runs is invalid.
    """
    from loadtests.compare import Run, compare_runs  # noqa: PLC0415 - loads numpy
    from loadtests.report.folder import read_run  # noqa: PLC0415

    (first, rows_a), (second, rows_b) = read_run(a), read_run(b)
    compared = compare_runs(Run(rows_a, float(first["duration_s"])), Run(rows_b, float(second["duration_s"])))
    notes = _notes(first, second)
    if as_json:
        result = {"notes": notes, "figures": [{**asdict(each), "differs": each.differs} for each in compared]}
        typer.echo(orjson.dumps(result, option=orjson.OPT_INDENT_2).decode())
    else:
        _show(compared, notes, Console())
    return 0 if first["valid"] and second["valid"] else 1


def _notes(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """What keeps the two from being compared as they stand."""
    notes = [
        f"{name} is invalid: {'; '.join(run['invalid_because'])}"
        for name, run in (("A", a), ("B", b))
        if not run["valid"]
    ]
    notes += [
        f"{name} differs: {a['plan'].get(name)} and {b['plan'].get(name)}"
        for name in _ALIKE
        if a["plan"].get(name) != b["plan"].get(name)
    ]
    if a["leaks"] or b["leaks"]:
        notes.append(f"leaks: {a['leaks']} and {b['leaks']} bytes")
    return notes


def _show(compared: list[Compared], notes: list[str], console: Console) -> None:
    table = Table(title="B relative to A")
    table.add_column("figure")
    for name in ("A", "B", "ratio", "95 % interval", ""):
        table.add_column(name, justify="right")
    for each in compared:
        interval = (
            "too little to say" if each.low is None or each.high is None else f"{each.low:.2f} to {each.high:.2f}"
        )
        table.add_row(
            each.figure,
            _figure(each.a),
            _figure(each.b),
            "-" if each.ratio is None else f"{each.ratio:.2f}",
            interval,
            "[bold]differs[/]" if each.differs else "",
        )
    console.print(table)
    for note in notes:
        console.print(note, markup=False, highlight=False)


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"
