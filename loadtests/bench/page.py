"""The page of benchmarks in Markdown: the machine, a table of all of them with their ratios, and what each printed."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson
import psutil

from loadtests.bench.catalogue import Bench
from loadtests.bench.findings import DONE, Finding

_NEVER = "not run on this machine"
_MOST_RATIOS = 6
_RATIO_WORDS = ("ratio", "_to_", "share")


def page_of(benches: Mapping[str, Bench], found: Callable[[str], Finding | None]) -> str:
    """The whole page. `found` gives the newest finding of a benchmark, or None."""
    findings = {name: found(name) for name in benches}
    memory_gib = psutil.virtual_memory().total / 1024**3
    parts = [
        "# Benchmarks of one machine",
        "",
        "Written by `make bench`; `loadtests/bench/README.md` says how each one is read. Absolute figures are of this",
        "machine at that moment. Ratios are to a floor of the same run, and carry over to other machines.",
        "",
        f"Machine: {os.cpu_count()} cores, {platform.machine()}, {memory_gib:.0f} GiB, {platform.system()}, "
        f"Python {platform.python_version()}.",
        "",
        "| benchmark | state | date (UTC) | took, s | load average | ratios and shares |",
        "|---|---|---|---|---|---|",
        *(_row(name, finding) for name, finding in findings.items()),
    ]
    for name, bench in benches.items():
        parts += ["", *_section(name, bench, findings[name])]
    return "\n".join(parts) + "\n"


def ratios_of(printed: str) -> list[tuple[str, float]]:
    """Figures of a printed JSON object whose name says that they are a ratio or a share, in order; else none."""
    try:
        value = orjson.loads(printed)
    except orjson.JSONDecodeError:
        return []
    return [(name, figure) for name, figure in _leaves(value, "") if any(word in name for word in _RATIO_WORDS)]


def _leaves(value: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def _row(name: str, finding: Finding | None) -> str:
    if finding is None:
        return f"| [{name}](#{name}) | {_NEVER} | | | | |"
    state = f"{finding.state}, cut short" if finding.quick and finding.state == DONE else finding.state
    if finding.reason is not None:
        state += f": {finding.reason}"
    load = ", ".join(f"{each:g}" for each in finding.load)
    ratios = ratios_of(finding.printed) if finding.state == DONE else []
    if finding.state == DONE and not ratios:
        return (
            f"| [{name}](#{name}) | {state} | {_date(finding)} | {finding.took_s:.0f} | {load} | in its table below |"
        )
    shown = "; ".join(f"{path} {figure:g}" for path, figure in ratios[:_MOST_RATIOS])
    more = "; …" if len(ratios) > _MOST_RATIOS else ""
    return f"| [{name}](#{name}) | {state} | {_date(finding)} | {finding.took_s:.0f} | {load} | {shown}{more} |"


def _date(finding: Finding) -> str:
    return finding.began.removesuffix("+00:00").replace("T", " ")


def _section(name: str, bench: Bench, finding: Finding | None) -> list[str]:
    lines = [f"## {name}", "", bench.about]
    if finding is None:
        return [*lines, "", f"{_NEVER.capitalize()}: `python -m loadtests.bench.{name}`."]
    if finding.reason is not None:
        lines += ["", f"**{finding.state.capitalize()}**: {finding.reason}."]
    if finding.quick:
        lines += ["", "Cut short (`--quick`): it shows that the benchmark runs, and its figures are worth little."]
    if finding.printed:
        lines += ["", "```text", finding.printed.replace("```", "'''"), "```"]
    return lines
