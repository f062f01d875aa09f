"""Runs the benchmarks of this machine and writes what is known of each to one page, with machine, dates and ratios.

    python -m loadtests.bench.everything [--out docs/benchmarks.md] [--only decide --only self] [--quick] [--fresh-h 12]

What each one found is kept in `$ISTHMUS_HOME/loadtests/bench`, and the page is written anew after every one of them,
from the newest of each: a run that is interrupted, or was told to do a part, loses nothing. A benchmark that failed,
lacks something here or was never run stands on the page with the reason; the exit code is 1 if one failed in this run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from loadtests.bench.catalogue import BENCHES, Bench, what_is_missing
from loadtests.bench.findings import DONE, FAILED, MISSING, Finding, keep, kept
from loadtests.bench.page import page_of
from shared import __version__

_LIMIT_S = 1_800
_SHOWN_CHARS = 1_500
_END_LIMIT_S = 10


def run_bench(name: str, bench: Bench, *, quick: bool, limit_s: float = _LIMIT_S) -> Finding:
    """Run one benchmark as a process of its own; what it started ends with it."""
    began_s, when = time.monotonic(), datetime.now(UTC)
    quick = quick and bool(bench.short)
    if (missing := what_is_missing(bench)) is not None:
        return _finding(name, when, 0.0, quick, MISSING, reason=missing)
    command = [sys.executable, "-m", f"loadtests.bench.{name}", *(bench.short if quick else ())]
    process = subprocess.Popen(  # noqa: S603 - ours
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        out, _ = _ended(process)
        reason = f"it did not end within {limit_s:g} s"
        return _finding(
            name, when, time.monotonic() - began_s, quick, FAILED, printed=out[-_SHOWN_CHARS:], reason=reason
        )
    except BaseException:
        _ended(process)
        raise
    took_s = time.monotonic() - began_s
    if process.returncode == 0:
        return _finding(name, when, took_s, quick, DONE, printed=out)
    last = (out + err)[-_SHOWN_CHARS:]
    return _finding(name, when, took_s, quick, FAILED, printed=last, reason=f"it ended with code {process.returncode}")


def _ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """End a benchmark and the parts that it started: they are its session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            return process.communicate(timeout=_END_LIMIT_S)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    return process.communicate()


def _finding(
    name: str, when: datetime, took_s: float, quick: bool, state: str, *, printed: str = "", reason: str | None = None
) -> Finding:
    return Finding(
        name=name,
        began=when.isoformat(timespec="minutes"),
        took_s=round(took_s, 1),
        state=state,
        reason=reason,
        printed=_without_places(printed).strip(),
        quick=quick,
        load=tuple(round(each, 1) for each in os.getloadavg()),
        version=__version__,
    )


def _without_places(text: str) -> str:
    """`text` without the folders of this machine: the page is for others."""
    for place, short in ((str(Path.cwd()), "."), (str(Path.home()), "~"), (sys.prefix, "VENV")):
        text = text.replace(place, short) if len(place) > 1 else text
    return text


def _is_fresh(finding: Finding | None, hours: float, *, quick: bool) -> bool:
    if finding is None or finding.state != DONE or (finding.quick and not quick):
        return False
    age = datetime.now(UTC) - datetime.fromisoformat(finding.began)
    return age.total_seconds() < hours * 3600


def main(
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("docs/benchmarks.md"),
    only: Annotated[list[str] | None, typer.Option(help="Benchmarks to run; may be repeated.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Cut each short: shows that it runs, not what it finds.")
    ] = False,
    fresh_h: Annotated[float, typer.Option(min=0, help="Leave out what was measured within so many hours.")] = 0.0,
) -> None:
    """Run the benchmarks and write the page."""
    names = only or list(BENCHES)
    if unknown := set(names) - set(BENCHES):
        raise typer.BadParameter(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(BENCHES)}")
    failed = False
    for name in names:
        if _is_fresh(kept(name), fresh_h, quick=quick):
            continue
        print(f"== {name}", flush=True)
        found = run_bench(name, BENCHES[name], quick=quick)
        keep(found)
        failed |= found.state == FAILED
        print(found.printed or found.reason, flush=True)
        out.write_text(page_of(BENCHES, kept), encoding="utf-8")
    out.write_text(page_of(BENCHES, kept), encoding="utf-8")
    raise typer.Exit(failed)


if __name__ == "__main__":
    typer.run(main)
