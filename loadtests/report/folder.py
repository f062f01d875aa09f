"""Writes and reads the folder of a run: `run.json`, `junit.xml`, `report.html` beside the raw samples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from loadtests.processes import Files
from loadtests.report.junit import junit
from loadtests.report.page import page
from loadtests.samples import read_samples
from shared.errors import IsthmusError

RUN, JUNIT, PAGE = "run.json", "junit.xml", "report.html"


def write_reports(folder: Path, report: Mapping[str, Any]) -> None:
    """Write all three."""
    (folder / RUN).write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2))
    (folder / JUNIT).write_text(junit(report), encoding="utf-8")
    (folder / PAGE).write_text(page(report, read_samples(Files(folder).samples)), encoding="utf-8")


def read_run(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The report and the raw samples of a run.

    Raises:
        IsthmusError: the folder is none of a run.
    """
    try:
        report = orjson.loads((folder / RUN).read_bytes())
        if not isinstance(report, dict) or "plan" not in report or "duration_s" not in report:
            raise TypeError
    except (OSError, orjson.JSONDecodeError, TypeError):
        raise IsthmusError(f"{folder} is no folder of a load test: it has no {RUN}.") from None
    return report, read_samples(Files(folder).samples)
