"""Prints the findings as a table or as JSON; exit code 1 when an installed tier lacks something it needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import orjson
import typer
from rich.console import Console
from rich.text import Text

from shared import __version__
from shared.doctor import machine, packages
from shared.doctor.finding import Finding, Verdict, is_failure
from shared.tables import Rows

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
    table = Rows("tier", "what", "", "found", "what to do")
    for each in findings:
        verdict = Text(each.verdict, style=_STYLES[each.verdict])
        table.add_row(each.tier, each.subject, verdict, each.found, each.advice or "")
    console.print(table)
    console.print("Something that an installed tier needs is missing." if failed else "All that is needed is here.")
