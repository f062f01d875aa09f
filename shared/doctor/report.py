"""Prints the findings as a table or as JSON; exit code 1 when an installed tier lacks something it needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import orjson
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from shared import __version__
from shared.doctor import machine, packages
from shared.doctor.finding import Finding, Verdict, is_failure

_STYLES = {Verdict.OK: "green", Verdict.NOTE: "yellow", Verdict.MISSING: "bold red"}


def run(*, config: Path | None, as_json: bool) -> int:
    """Check everything and print it."""
    installed = packages.installed_tiers()
    findings = [*packages.check(), *machine.check(installed, config)]
    failed = is_failure(findings)
    if as_json:
        answer = {
            "version": __version__,
            "installed": sorted(installed),
            "ok": not failed,
            "findings": [dataclasses.asdict(each) for each in findings],
        }
        typer.echo(orjson.dumps(answer).decode())
    else:
        _print(findings, failed)
    return 1 if failed else 0


def _print(findings: Sequence[Finding], failed: bool) -> None:
    console = Console()
    table = Table("tier", "what", "", "found", "what to do", box=None, pad_edge=False)
    for each in findings:
        style = _STYLES[each.verdict]
        cells = (each.tier, each.subject, f"[{style}]{each.verdict}[/]", escape(each.found), escape(each.advice or ""))
        table.add_row(*cells)
    console.print(table)
    console.print("Something that an installed tier needs is missing." if failed else "All that is needed is here.")
