"""Shows a report in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_MEASURES = {
    "ttft_ms": "first text",
    "content_ms": "first text of the answer",
    "tpot_ms": "per output token",
    "longest_gap_ms": "longest silence",
    "total_ms": "whole answer",
}
_POINTS = ("count", "min", "p50", "p90", "p95", "p99", "max")


def show(report: Mapping[str, Any], console: Console) -> None:
    """Print a report for people."""
    table = Table(title="Good answers (milliseconds)")
    table.add_column("measure")
    for point in _POINTS:
        table.add_column(point, justify="right")
    for key, title in _MEASURES.items():
        table.add_row(title, *(_cell(report[key].get(point), point) for point in _POINTS))
    console.print(table)
    console.print(
        f"{report['succeeded']} good, {report['failed']} failed, {report['unfinished']} cut off by the end "
        f"in {report['duration_s']:.1f} s: "
        f"{report['requests_per_s']:.2f} answers/s, {report['output_tokens_per_s']:.1f} tokens/s"
    )
    if report["told_to_wait"]:
        console.print(f"{report['told_to_wait']} were told to wait, came again, and count with the wait")
    p95 = report["ttft_ms"].get("p95")
    at_p95 = "" if p95 is None else f", first text p95 {p95:.0f} ms"
    console.print(f"leaks: {report['leaks']}{at_p95} ({report['canaries']} prompts with canaries)")
    console.print(f"  {report['leaks_evidence']}", style="dim", highlight=False)
    for title, counts in (("tiers", report["tiers"]), ("failures", report["failures"])):
        if counts:
            console.print(f"{title}: " + ", ".join(f"{escape(name)} {count}" for name, count in counts.items()))
    for fault in report["faults"]:
        shares = ", ".join(f"{part} {_share(share)}" for part, share in fault["edge_ratio"].items())
        console.print(f"{fault['name']} from {fault['from_s']:.0f} to {fault['to_s']:.0f} s, edge share: {shares}")
    for each in report["objectives"]:
        seen = "nothing measured" if each["seen"] is None else f"{each['seen']:.4g}"
        mark = "[green]met[/]" if each["met"] else "[bold red]missed[/]"
        console.print(f"{mark} {each['name']} (seen {seen})", highlight=False)
    for reason in report["invalid_because"]:
        console.print(f"[bold red]invalid[/]: {escape(reason)}", highlight=False)


def _cell(value: float | None, point: str) -> str:
    if value is None:
        return "-"
    return str(value) if point == "count" else f"{value:.1f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
