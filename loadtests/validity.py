"""Decides whether a run says anything: what was lost, and where the load generator was what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from loadtests.processes import Lost
from loadtests.settings import LoadtestSettings
from shared.settings import home


def ceiling_file() -> Path:
    """Where `loadtests.bench.self` leaves what one worker of this machine can do."""
    return home() / "loadtests" / "ceiling.json"


def read_ceiling() -> float | None:
    """Answers a second that one worker of this machine was measured to take; None where nobody measured."""
    try:
        value = orjson.loads(ceiling_file().read_bytes())["answers_per_s"]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return float(value) if isinstance(value, int | float) and math.isfinite(value) and value > 0 else None


def reasons_against(
    report: Mapping[str, Any],
    settings: LoadtestSettings,
    *,
    lost: Sequence[Lost] = (),
    problems: Sequence[str] = (),
    ceiling_per_s: float | None = None,
) -> list[str]:
    """Why the run is invalid; empty where it is valid. `report` is the generator's own, `problems` those of faults."""
    workers = report["generator"]["workers"]
    found = [f"{each}: what it had not reported is missing" for each in lost]
    found += list(problems)
    ended = sum(each["finished"] for each in workers)
    # A lost worker is one of those that did not report their end.
    if (silent := settings.workers - ended - len(lost)) > 0:
        found.append(f"{silent} of {settings.workers} workers never reported the end of their run")
    if len({each["plan"] for each in workers}) > 1:
        found.append("the workers had different settings")
    if report["requests"] == 0:
        found.append("no request was answered or failed")
    return found + _cut_off(report, settings) + _at_its_limit(report, settings, ceiling_per_s)


def _cut_off(report: Mapping[str, Any], settings: LoadtestSettings) -> list[str]:
    """What the end of the run left open: the slowest answers, so leaving many out makes a stack look fast."""
    open_at_end = report["unfinished"]
    allowed = settings.users if settings.rate_per_s is None else 0
    sent = report["requests"] + open_at_end
    if open_at_end - allowed > settings.truth.unfinished_ratio * sent:
        return [f"the end of the run cut off {open_at_end} of {sent} requests"]
    return []


def _at_its_limit(report: Mapping[str, Any], settings: LoadtestSettings, ceiling_per_s: float | None) -> list[str]:
    limits, found = settings.truth, []
    for each in report["generator"]["workers"]:
        name = f"worker {each['worker']}"
        if each["overflow"]:
            found.append(f"{name} left out {each['overflow']} requests because too many were open")
        if each["cpu_ratio"] > limits.cpu_ratio:
            found.append(f"{name} used {each['cpu_ratio']:.0%} of its core, more than {limits.cpu_ratio:.0%}")
        late = each["lag_ms"].get("p95")
        if late is not None and late > limits.lag_ms:
            found.append(f"{name} woke up {late:.0f} ms late at p95, more than {limits.lag_ms:g} ms")
    late = report["late_ms"].get("p95")
    if late is not None and late > limits.lag_ms:
        found.append(f"requests were sent {late:.0f} ms after they were due at p95, more than {limits.lag_ms:g} ms")
    if ceiling_per_s is not None:
        most = ceiling_per_s * settings.workers * limits.ceiling_ratio
        if report["requests_per_s"] > most:
            found.append(
                f"{report['requests_per_s']:.0f} answers a second are near the ceiling of the generator "
                f"({ceiling_per_s * settings.workers:.0f})"
            )
    return found
