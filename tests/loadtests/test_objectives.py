"""Objectives: what a file may say, what a run met, and which part of it counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from loadtests.objectives import SHIPPED, Slo, read_slo, verdicts
from loadtests.processes import Lost
from loadtests.settings import LoadtestSettings
from loadtests.summary import summary_of
from loadtests.validity import reasons_against
from shared.errors import SettingsError


def _row(at_s: float, ttft_ms: float, *, kind: str = "chat", failure: str | None = None) -> dict[str, Any]:
    row = {"at_s": at_s, "kind": kind, "ttft_ms": ttft_ms, "total_ms": ttft_ms + 100, "tier": "edge"}
    return row if failure is None else {**row, "failure": failure}


ROWS = [_row(second, 100.0 if second < 50 else 900.0) for second in range(100)]


def _seen(objective: str, rows: list[dict[str, Any]] = ROWS, bands: tuple[tuple[float, float], ...] = ()) -> Any:
    slo = Slo.model_validate({"objectives": [yaml.safe_load(objective)]})
    [verdict] = verdicts(slo, rows, {**summary_of(rows, 100.0), "leaks": 0}, bands)
    return verdict


def test_bounds_are_held_from_both_sides_and_met_when_reached() -> None:
    assert _seen("{measure: ttft_ms, point: p50, at_most: 100}").met
    assert not _seen("{measure: ttft_ms, point: p95, at_most: 899.9}").met
    assert _seen("{measure: requests_per_s, at_least: 1}").met
    assert not _seen("{measure: edge_ratio, at_most: 0.99}").met
    assert _seen("{measure: leaks, at_most: 0}").met


def test_what_was_not_measured_is_missed() -> None:
    verdict = _seen("{measure: tpot_ms, point: p50, at_most: 100}")
    assert (verdict.seen, verdict.met) == (None, False)
    assert not _seen("{measure: ttft_ms, point: p50, at_most: 100, kind: rag}").met


def test_a_fault_and_the_time_to_settle_after_it_can_be_left_out_or_looked_at_alone() -> None:
    bands = ((45.0, 90.0),)
    assert _seen("{measure: ttft_ms, point: max, at_most: 100, when: steady}", bands=bands).met
    assert _seen("{measure: ttft_ms, point: max, at_most: 100, when: fault}", bands=bands).seen == 900.0
    rate = _seen("{measure: requests_per_s, at_least: 0.9, when: steady}", bands=bands)
    assert rate.seen == pytest.approx(45 / 45, rel=0.03)


@pytest.mark.parametrize(
    "objective",
    [
        "{measure: ttft_ms, at_most: 1}",
        "{measure: ttft_ms, point: p42, at_most: 1}",
        "{measure: leaks, point: p95, at_most: 0}",
        "{measure: leaks, at_most: 0, when: steady}",
        "{measure: happiness, at_least: 1}",
        "{measure: failed_ratio}",
        "{measure: failed_ratio, at_most: 1, at_least: 0}",
        "{measure: failed_ratio, at_most: .nan}",
        "{measure: failed_ratio, at_most: 0.1, at_mst: 0.2}",
    ],
)
def test_an_objective_that_cannot_be_held_is_refused(tmp_path: Path, objective: str) -> None:
    path = tmp_path / "slo.yaml"
    path.write_text(f"objectives:\n  - {objective}\n")
    with pytest.raises(SettingsError, match=r"objectives\.0"):
        read_slo(path)


@pytest.mark.parametrize("text", ["", "objectives: []", "objectives: [", "[]", "objectives: 1\nobjectives: 2"])
def test_a_file_without_objectives_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "slo.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError):
        read_slo(path)


def test_the_shipped_file_holds_leaks_at_none() -> None:
    assert any(each.measure == "leaks" and each.at_most == 0 for each in read_slo(SHIPPED).objectives)


def _report(**changes: Any) -> dict[str, Any]:
    worker = {"worker": 0, "finished": True, "plan": "p", "overflow": 0, "cpu_ratio": 0.1, "lag_ms": {"p95": 1.0}}
    workers = changes.pop("workers", [worker])
    report = {"requests": 100, "unfinished": 0, "requests_per_s": 10.0, "late_ms": {"count": 0}} | changes
    return {**report, "generator": {"workers": [worker | each for each in workers]}}


@pytest.mark.parametrize(
    ("report", "options", "reason"),
    [
        (_report(requests=0), {}, "no request was answered"),
        (_report(workers=[{"cpu_ratio": 0.9}]), {}, "used 90% of its core"),
        (_report(workers=[{"lag_ms": {"p95": 51.0}}]), {}, "woke up 51 ms late"),
        (_report(workers=[{"overflow": 3}]), {}, "left out 3 requests"),
        (_report(workers=[{"finished": False}]), {}, "1 of 1 workers never reported the end"),
        (_report(workers=[{}, {"plan": "q"}]), {}, "different settings"),
        (_report(unfinished=20), {}, "cut off 20 of 120"),
        (_report(late_ms={"count": 9, "p95": 80.0}), {}, "80 ms after they were due"),
        (_report(), {"ceiling_per_s": 12.0}, "near the ceiling"),
        (_report(), {"problems": ["the fault heat-ramp never began"]}, "never began"),
        (_report(), {"lost": [Lost(1, -9, 31.0)]}, "worker 1 was killed by signal 9 after 31 s"),
    ],
)
def test_a_run_that_says_nothing_is_invalid_and_says_why(
    report: dict[str, Any], options: dict[str, Any], reason: str
) -> None:
    assert any(reason in each for each in reasons_against(report, LoadtestSettings(), **options))


def test_a_sound_run_is_valid() -> None:
    assert reasons_against(_report(unfinished=4), LoadtestSettings(), ceiling_per_s=100.0) == []
