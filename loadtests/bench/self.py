"""Measures the load generator itself: its ceiling, and how late it stamps an arrival.

    python -m loadtests.bench.self [--users 8] [--duration-s 5] [--first-ms 100]

A load test says something about a stack only below this ceiling, and only beyond this error. The ceiling of one worker
is kept in `$ISTHMUS_HOME/loadtests/ceiling.json`, and a later run that comes near it is invalid.
"""

from __future__ import annotations

from typing import Any

import orjson
import typer

from loadtests.bench.process import started
from loadtests.run import run
from loadtests.settings import LoadtestSettings
from loadtests.validity import ceiling_file
from shared.testing.answers import MODEL


def measure(*, users: int, duration_s: int, first_ms: float) -> dict[str, Any]:
    """Answers a second with an instant backend, and the error of the first-token time with a delay of `first_ms`."""
    ceiling = _summary(users, duration_s, 0.0)
    delayed = _summary(users, duration_s, first_ms)
    return {
        "users": users,
        "ceiling_share_of_core": ceiling["generator"]["workers"][0]["cpu_ratio"],
        "answers_per_s": ceiling["requests_per_s"],
        "ttft_error_ms": {
            point: round(delayed["ttft_ms"][point] - first_ms, 2) for point in ("p50", "p95", "p99", "max")
        },
        "failed": ceiling["failed"] + delayed["failed"],
    }


def _summary(users: int, duration_s: int, first_ms: float) -> dict[str, Any]:
    with started("loadtests.bench.instant", "--first-ms", str(first_ms)) as address:
        settings = LoadtestSettings(
            host=address, users=users, duration_s=duration_s, scenario="chat", canary_ratio=0.0, model=MODEL
        )
        return run(settings)


def main(users: int = 8, duration_s: int = 5, first_ms: float = 100.0) -> None:
    """Print the measurement as JSON."""
    result = measure(users=users, duration_s=duration_s, first_ms=first_ms)
    if result["failed"] == 0 and result["answers_per_s"] > 0:
        ceiling_file().parent.mkdir(parents=True, exist_ok=True)
        ceiling_file().write_bytes(orjson.dumps({"answers_per_s": result["answers_per_s"]}))
    print(orjson.dumps(result, option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    typer.run(main)
