"""Runs locust headless in a process of its own, for a bounded time, and hands back its report."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import orjson

from loadtests.settings import LoadtestSettings
from shared.errors import IsthmusError
from shared.settings import PREFIX, environment

_SECTION = f"{PREFIX}LOADTEST__"
_STOP_LIMIT_S = 10
"""How long running answers get to end when the time is over."""
_START_LIMIT_S = 30


def run(settings: LoadtestSettings) -> dict[str, Any]:
    """The summary of one run (see `loadtests.ledger`).

    Raises:
        IsthmusError: locust did not start, did not end in time, or left no report.
    """
    with tempfile.TemporaryDirectory(prefix="isthmus-loadtest-") as folder:
        report = Path(folder) / "report.json"
        limit_s = settings.duration_s + _STOP_LIMIT_S + _START_LIMIT_S
        try:
            done = subprocess.run(  # noqa: S603 - our own interpreter and arguments
                _command(settings),
                env=_environment(settings, report),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise IsthmusError(f"The load test did not end within {limit_s} s and was killed.") from None
        if not report.exists():
            last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise IsthmusError(f"The load test ended with code {done.returncode} and no report: {last}")
        summary: dict[str, Any] = orjson.loads(report.read_bytes())
    if settings.report is not None:
        settings.report.write_bytes(orjson.dumps(summary, option=orjson.OPT_INDENT_2))
    return summary


def _command(settings: LoadtestSettings) -> list[str]:
    return [
        *(sys.executable, "-m", "locust"),
        *("--locustfile", str(Path(__file__).with_name("locustfile.py"))),
        *("--headless", "--only-summary", "--exit-code-on-error", "0"),
        *("--host", settings.host.rstrip("/")),
        *("--users", str(settings.users), "--spawn-rate", str(settings.spawn_rate)),
        *("--run-time", f"{settings.duration_s}s", "--stop-timeout", str(_STOP_LIMIT_S)),
    ]


def _environment(settings: LoadtestSettings, report: Path) -> dict[str, str]:
    """This environment with every setting of the load test in it, so that the child reads no file."""
    values = settings.model_dump(exclude_none=True) | {"report": report}
    if settings.api_key is not None:
        values["api_key"] = settings.api_key.get_secret_value()
    kept = {name: value for name, value in environment().items() if not name.startswith(_SECTION)}
    return kept | {f"{_SECTION}{name.upper()}": str(value) for name, value in values.items()}
