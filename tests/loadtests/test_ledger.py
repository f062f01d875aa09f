"""Outcomes add up: percentiles of good answers alone, each failure once."""

from __future__ import annotations

import pytest

from loadtests.ledger import Ledger, percentile
from loadtests.streaming import Failure, Outcome


def good(ttft_ms: float, tokens: int = 4, tier: str | None = "edge") -> Outcome:
    return Outcome(None, 200, ttft_ms * 2, ttft_ms=ttft_ms, tpot_ms=5.0, output_tokens=tokens, tier=tier)


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (50, 5), (90, 9), (91, 10), (99, 10), (100, 10)])
def test_percentile_is_nearest_rank(percent: float, expected: float) -> None:
    assert percentile(range(1, 11), percent) == expected


def test_failed_answers_are_in_no_percentile() -> None:
    ledger = Ledger()
    for value in (10, 20, 30):
        ledger.add(good(value))
    ledger.add(Outcome(Failure.STALL, 200, 60_000, ttft_ms=55_000))
    ledger.add(Outcome(Failure.STATUS, 503, 1))
    ledger.add(Outcome(Failure.STATUS, 503, 1))
    summary = ledger.summary(10)
    assert summary["ttft_ms"] == {"count": 3, "min": 10, "p50": 20, "p90": 30, "p95": 30, "p99": 30, "max": 30}
    assert summary["total_ms"]["max"] == 60
    assert (summary["requests"], summary["succeeded"], summary["failed"]) == (6, 3, 3)
    assert summary["failures"] == {"stall": 1, "status 503": 2}
    assert summary["requests_per_s"] == 0.3
    assert summary["output_tokens_per_s"] == 1.2


def test_what_the_end_of_the_run_cut_off_is_neither_good_nor_failed() -> None:
    worker, master = Ledger(), Ledger()
    for _ in range(3):
        worker.begin()
    worker.add(good(10))
    master.merge(worker.take())
    assert master.summary(1)["unfinished"] == 2
    assert master.summary(1)["requests"] == 1


def test_an_empty_run_has_a_report() -> None:
    summary = Ledger().summary(0)
    assert summary["ttft_ms"] == {"count": 0}
    assert summary["requests_per_s"] == 0.0


def test_ledgers_of_workers_merge_and_are_counted_once() -> None:
    worker, master = Ledger(), Ledger()
    worker.add(good(10))
    worker.add(Outcome(Failure.NO_DONE, 200, 1))
    master.merge(worker.take())
    master.merge(worker.take())
    worker.add(good(30, tier=None))
    master.merge(worker.take())
    summary = master.summary(1)
    assert summary["succeeded"] == 2
    assert summary["failures"] == {"no_done": 1}
    assert summary["tiers"] == {"edge": 1, "unnamed": 1}
    assert summary["tpot_ms"]["count"] == 2
