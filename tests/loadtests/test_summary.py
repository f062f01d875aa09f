"""Samples add up: percentiles of good answers alone, each failure once, and what a closed loop left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loadtests.samples import Sample, read_samples, to_dict, to_lines
from loadtests.streaming import Failure, Outcome
from loadtests.summary import by_kind, corrected_totals, percentile, summary_of
from shared.errors import IsthmusError


def row(outcome: Outcome, *, at_s: float = 0.0, kind: str = "chat", **more: Any) -> dict[str, Any]:
    return to_dict(Sample(0, kind, at_s, outcome, **more))


def good(ttft_ms: float, tokens: int = 4, tier: str | None = "edge") -> Outcome:
    return Outcome(None, 200, ttft_ms * 2, ttft_ms=ttft_ms, tpot_ms=5.0, output_tokens=tokens, tier=tier)


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (50, 5), (90, 9), (91, 10), (99, 10), (100, 10)])
def test_percentile_is_nearest_rank(percent: float, expected: float) -> None:
    assert percentile(range(1, 11), percent) == expected


def test_failed_answers_are_in_no_percentile() -> None:
    rows = [row(good(value)) for value in (10, 20, 30)]
    rows.append(row(Outcome(Failure.STALL, 200, 60_000, ttft_ms=55_000)))
    rows += [row(Outcome(Failure.STATUS, 503, 1))] * 2
    summary = summary_of(rows, 10)
    assert summary["ttft_ms"] == {"count": 3, "min": 10, "p50": 20, "p90": 30, "p95": 30, "p99": 30, "max": 30}
    assert summary["total_ms"]["max"] == 60
    assert (summary["requests"], summary["succeeded"], summary["failed"]) == (6, 3, 3)
    assert summary["failed_ratio"] == 0.5
    assert summary["failures"] == {"stall": 1, "status 503": 2}
    assert summary["requests_per_s"] == 0.3
    assert summary["output_tokens_per_s"] == 1.2


def test_what_the_end_of_the_run_cut_off_is_neither_good_nor_failed() -> None:
    summary = summary_of([row(good(10))], 1, begun=3)
    assert (summary["unfinished"], summary["requests"]) == (2, 1)


def test_an_empty_run_has_a_report() -> None:
    summary = summary_of([], 0)
    assert summary["ttft_ms"] == {"count": 0}
    assert summary["requests_per_s"] == 0.0
    assert summary["failed_ratio"] is None
    assert summary["edge_ratio"] is None
    assert corrected_totals([]) == {"count": 0}


def test_tiers_and_leaks_are_counted_from_the_answers() -> None:
    violation = Outcome(Failure.PRIVACY_VIOLATION, 200, 1, tier="cloud")
    rows = [row(good(1)), row(good(1, tier="cloud")), row(good(1, tier=None))]
    rows.append(row(violation, canary=True, leaked_bytes=27))
    summary = summary_of(rows, 1)
    assert summary["tiers"] == {"cloud": 1, "edge": 1, "unnamed": 1}
    assert summary["edge_ratio"] == pytest.approx(1 / 3, abs=1e-5)
    assert (summary["canaries"], summary["privacy_violations"], summary["leaked_bytes_by_answers"]) == (1, 1, 27)


def test_each_kind_has_its_own_figures() -> None:
    kinds = by_kind([row(good(10), kind="chat"), row(good(90), kind="rag")], 1)
    assert {kind: each["ttft_ms"]["p50"] for kind, each in kinds.items()} == {"chat": 10, "rag": 90}


def test_a_closed_loop_is_corrected_for_what_its_waiting_users_did_not_send() -> None:
    """Ten users a second, and one answer of ten seconds: nine requests would have waited meanwhile."""
    rows = [row(Outcome(None, 200, 1_000.0)) for _ in range(99)] + [row(Outcome(None, 200, 10_000.0))]
    corrected = corrected_totals(rows)
    assert corrected["count"] == 100 + 9
    assert corrected["p95"] > 4_000
    assert summary_of(rows, 1)["total_ms"]["p95"] == 1_000


def test_samples_come_back_from_their_file_as_they_were(tmp_path: Path) -> None:
    rows = [row(good(1.23456), at_s=3.5, late_ms=0.25), row(Outcome(Failure.STATUS, 404, 2, code="not_found"))]
    path = tmp_path / "samples.jsonl"
    path.write_bytes(to_lines(rows))
    assert read_samples(path) == rows
    assert rows[0]["ttft_ms"] == 1.235
    assert rows[1]["failure"] == "status 404"


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"at_s": "0", "total_ms": 1}', b'{"at_s": 0}'])
def test_a_line_that_is_no_sample_is_refused_by_its_number(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_bytes(to_lines([row(good(1))]) + line + b"\n")
    with pytest.raises(IsthmusError, match=r"Line 2 of .* is no sample"):
        read_samples(path)
