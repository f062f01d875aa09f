"""Runs every benchmark of this machine and writes what they print to one page, with machine, date and ratios.

    python -m loadtests.bench.everything [--out docs/benchmarks.md] [--only decide --only self]

A benchmark that fails is named as failed, with the end of what it said; the page is written all the same, and the exit
code is 1.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import psutil
import typer

from shared import __version__

BENCHES = {
    "decide": "One routing decision; the ratio is to writing down as many candidates, or to copying the columns once.",
    "scanner": "The privacy scanner, by size of text, and what it finds.",
    "audit": "Checking an audit log; the ratio is to reading it and taking the code of each line.",
    "router": "The whole router; ratios are to a bare proxy before the same backend in the same run.",
    "self": "The load generator: its ceiling on this machine, and how late it stamps an arrival.",
    "edge_overhead": "What the edge agent adds to a token; the ratio is to the bare engine. Needs the default model.",
    "engine_changes": "Restart and swap of the engine. Needs the default model.",
    "speculation": "Speculation; ratios are to plain decoding. Needs the default model.",
    "prediction": "Predicted against measured speed and memory. Needs the default model.",
}
_LIMIT_S = 1_800
_SHOWN_CHARS = 1_500


@dataclass(frozen=True, slots=True)
class Ran:
    """One benchmark: what it printed, how long it took, and its exit code (None: it did not end in time)."""

    name: str
    printed: str
    took_s: float
    code: int | None


def run_bench(name: str) -> Ran:
    """Run one benchmark as a process of its own."""
    began_s = time.monotonic()
    command = [sys.executable, "-m", f"loadtests.bench.{name}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)  # noqa: S603 - ours
    except subprocess.TimeoutExpired:
        return Ran(name, f"did not end within {_LIMIT_S} s", time.monotonic() - began_s, None)
    said = done.stdout if done.returncode == 0 else (done.stdout + done.stderr)[-_SHOWN_CHARS:]
    return Ran(name, said.strip(), time.monotonic() - began_s, done.returncode)


def page(runs: Sequence[Ran], *, when: datetime) -> str:
    """The page in Markdown."""
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    memory = psutil.virtual_memory().total / 1024**3
    parts = [
        "# Benchmarks of one machine",
        "",
        "Written by `make bench`; `loadtests/bench/README.md` says how each one is read.",
        "Absolute figures are of this machine at that moment. Ratios are to a floor of the same run, and carry",
        "over to other machines.",
        "",
        f"- date: {when.isoformat(timespec='minutes')}",
        f"- machine: {os.cpu_count()} cores, {platform.machine()}, {memory:.0f} GiB, {platform.system()}",
        f"- Python {platform.python_version()}, Isthmus {__version__}",
        f"- load average at the end (1, 5, 15 minutes): {load}",
    ]
    for ran in runs:
        state = "" if ran.code == 0 else " (failed)"
        parts += ["", f"## {ran.name}{state}", "", BENCHES[ran.name], "", "```text", ran.printed, "```"]
        parts += ["", f"Took {ran.took_s:.0f} s."]
    return "\n".join(parts) + "\n"


def main(
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("docs/benchmarks.md"),
    only: Annotated[list[str] | None, typer.Option(help="Benchmarks to run; may be repeated.")] = None,
) -> None:
    """Run the benchmarks and write the page."""
    names = only or list(BENCHES)
    if unknown := set(names) - set(BENCHES):
        raise typer.BadParameter(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(BENCHES)}")
    runs = []
    for name in names:
        print(f"== {name}", flush=True)
        runs.append(run_bench(name))
        print(runs[-1].printed, flush=True)
    out.write_text(page(runs, when=datetime.now(UTC)), encoding="utf-8")
    raise typer.Exit(any(ran.code != 0 for ran in runs))


if __name__ == "__main__":
    typer.run(main)
