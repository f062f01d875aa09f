"""`isthmus loadtest`: a load test from the command line, and its report as a table and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table

from loadtests.settings import LoadtestSettings
from shared.settings import load

app = typer.Typer(help="Drive a running stack with streaming users and report what they saw.", no_args_is_help=True)
_MEASURES = {"ttft_ms": "time to first token", "total_ms": "whole answer", "tpot_ms": "time per output token"}
_POINTS = ("count", "min", "p50", "p90", "p95", "p99", "max")


@app.callback()
def root() -> None:
    """Drive a running stack with streaming users and report what they saw."""


@app.command("run")
def run_command(
    users: Annotated[int | None, typer.Option(help="Streaming users at once.")] = None,
    duration_s: Annotated[int | None, typer.Option("--duration", help="Seconds.")] = None,
    host: Annotated[str | None, typer.Option(help="Base address, such as http://127.0.0.1:8080.")] = None,
    route: Annotated[str | None, typer.Option(help="Value of x-isthmus-route: auto, edge or cloud.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Output tokens asked for.")] = None,
    report: Annotated[Path | None, typer.Option(help="File for the JSON report.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings file (YAML).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> int:
    """Run for a bounded time; exit with 1 when any answer failed or none came."""
    from loadtests.run import run  # noqa: PLC0415 - only this command starts processes

    settings = load(
        LoadtestSettings,
        "loadtest",
        config,
        users=users,
        duration_s=duration_s,
        host=host,
        route=route,
        max_tokens=max_tokens,
        report=report,
    )
    summary = run(settings)
    if as_json:
        typer.echo(orjson.dumps(summary, option=orjson.OPT_INDENT_2).decode())
    else:
        show(summary, Console())
    return 0 if summary["failed"] == 0 and summary["succeeded"] > 0 else 1


def show(summary: dict[str, Any], console: Console) -> None:
    """Print a summary for people."""
    table = Table(title="Good answers (milliseconds)")
    table.add_column("measure")
    for point in _POINTS:
        table.add_column(point, justify="right")
    for key, title in _MEASURES.items():
        row = summary[key]
        table.add_row(title, *(_cell(row.get(point), point) for point in _POINTS))
    console.print(table)
    console.print(
        f"{summary['succeeded']} good, {summary['failed']} failed, {summary['unfinished']} cut off by the end "
        f"in {summary['duration_s']:.1f} s: "
        f"{summary['requests_per_s']:.2f} answers/s, {summary['output_tokens_per_s']:.1f} tokens/s"
    )
    for title, counts in (("tiers", summary["tiers"]), ("failures", summary["failures"])):
        if counts:
            console.print(f"{title}: " + ", ".join(f"{name} {count}" for name, count in counts.items()))


def _cell(value: float | None, point: str) -> str:
    if value is None:
        return "-"
    return str(value) if point == "count" else f"{value:.1f}"
