"""A run with a heat ramp, as its report and its samples would be."""

from __future__ import annotations

import random
from typing import Any

import pytest

from loadtests.summary import by_kind, corrected_totals, summary_of

_DURATION_S = 120.0


def _rows() -> list[dict[str, Any]]:
    dice = random.Random(1)
    rows: list[dict[str, Any]] = []
    for number in range(400):
        at_s = number * _DURATION_S / 400
        hot = 40 < at_s < 72
        ttft = dice.lognormvariate(0, 0.3) * (420 if hot else 160)
        row = {
            "number": number,
            "kind": "rag" if number % 5 == 0 else "chat",
            "at_s": at_s,
            "status": 200,
            "tier": "cloud" if hot else "edge",
            "output_tokens": 30,
            "ttft_ms": ttft,
            "content_ms": ttft,
            "tpot_ms": dice.uniform(18, 30),
            "longest_gap_ms": 60.0,
            "total_ms": ttft + 700,
        }
        rows.append({**row, "failure": "connection_cut"} if number in (141, 142) else row)
    return rows


@pytest.fixture
def heat_run() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Between 36 and 66 s the device is too hot and the cloud answers, later and faster per token."""
    rows = _rows()
    figures = summary_of(rows, _DURATION_S, begun=403)
    machine = {"cores": 2, "processor": "x86_64", "python": "3.11"}
    lengths = {"median": 48.0, "sigma": 0.8, "least": 8, "most": 400}
    plan = {
        "scenario": "mixed", "about": "A <mix> & more.", "began": "2026-11-30T10:00:00+00:00", "host": "http://h:8080",
        "loop": "closed", "coordinated_omission": "closed loop", "users": 16, "rate_per_s": None, "shape": "constant",
        "duration_s": 120, "workers": 1, "seed": 1, "run_id": "ab", "machine": machine, "faults_asked": ["heat-ramp"],
        "lengths_tokens": {"chat": {"prompt": lengths, "output": lengths}},
    }  # fmt: skip
    levels = ((40, "nominal"), (46, "warm"), (52, "hot"), (70, "critical"), (80, "warm"), (121, "nominal"))
    report: dict[str, Any] = {
        "plan": plan,
        "valid": True,
        "invalid_because": [],
        "passed": False,
        "objectives": [
            {"name": "ttft_ms p95 at most 500", "seen": figures["ttft_ms"]["p95"], "met": False},
            {"name": "leaks at most 0", "seen": 0.0, "met": True},
            {"name": "rag tpot_ms p50 at most 1", "seen": None, "met": False},
        ],
        "leaks": 0,
        "leaks_evidence": "by a recorder",
        **figures,
        "total_corrected_ms": corrected_totals(rows),
        "by_kind": by_kind(rows, _DURATION_S),
        "faults": [
            {"name": "heat-ramp", "from_s": 36.0, "to_s": 66.0, "problem": None,
             "edge_ratio": {"before": 1.0, "during": 0.2, "after": 1.0}}
        ],
        "looks": [
            {"at_s": float(second), "tier": "edge", "level": next(name for until, name in levels if second < until)}
            for second in range(120)
        ],
    }  # fmt: skip
    return report, rows
