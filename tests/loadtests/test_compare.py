"""Two runs side by side: equal ones do not differ, slower ones do, and too little says nothing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from loadtests.cli import app
from loadtests.compare import Compared, Run, compare_runs
from shared.errors import IsthmusError


def _run(seed: int, *, slower: float = 1.0, count: int = 600, duration_s: float = 60.0) -> Run:
    dice = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for _ in range(count):
        ttft = 100.0 * slower * dice.lognormvariate(0, 0.3)
        at_s = dice.uniform(0, duration_s)
        rows.append({"at_s": at_s, "ttft_ms": ttft, "total_ms": ttft + 500, "output_tokens": 10, "tier": "edge"})
    return Run(rows, duration_s)


def _of(compared: list[Compared], figure: str) -> Compared:
    return next(each for each in compared if each.figure == figure)


def test_a_slower_run_differs_and_its_interval_holds_the_truth() -> None:
    found = _of(compare_runs(_run(1), _run(2, slower=1.3)), "ttft_ms p50")
    assert found.differs
    assert found.low is not None
    assert found.high is not None
    assert found.low < 1.3 < found.high


def test_runs_of_the_same_stack_do_not_differ() -> None:
    compared = compare_runs(_run(1), _run(2))
    assert not _of(compared, "ttft_ms p50").differs
    assert not _of(compared, "answers/s").differs
    assert _of(compared, "edge share").ratio == 1.0


def test_the_same_seed_gives_the_same_intervals() -> None:
    assert compare_runs(_run(1), _run(2)) == compare_runs(_run(1), _run(2))


def test_a_few_answers_have_no_interval() -> None:
    found = _of(compare_runs(_run(1, count=5), _run(2, count=5)), "ttft_ms p50")
    assert found.ratio is not None
    assert found.low is None
    assert not found.differs


def test_failed_answers_are_in_no_time_but_in_their_share() -> None:
    a, b = _run(1), _run(1)
    broken = Run([{**row, "failure": "stall"} if place % 2 else row for place, row in enumerate(b.rows)], 60.0)
    compared = compare_runs(a, broken)
    assert _of(compared, "failed share").b == 0.5
    assert _of(compared, "answers/s").ratio == pytest.approx(0.5)
    assert compare_runs(Run([], 60.0), Run([], 60.0))[0].figure == "answers/s", "figures of nobody are left out"


def _folder(path: Path, run: Run, **changes: Any) -> Path:
    path.mkdir()
    plan = {"scenario": "chat", "users": 4}
    report = {"plan": plan, "valid": True, "invalid_because": [], "duration_s": 60.0, "leaks": 0} | changes
    (path / "run.json").write_bytes(orjson.dumps(report))
    (path / "samples.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in run.rows))
    return path


def test_the_command_prints_intervals_and_ends_with_one_for_an_invalid_run(tmp_path: Path) -> None:
    a = _folder(tmp_path / "a", _run(1))
    b = _folder(tmp_path / "b", _run(2, slower=2), valid=False, invalid_because=["worker 1 was lost"])
    result = CliRunner().invoke(app, ["compare", str(a), str(b), "--json"], standalone_mode=False)
    assert result.return_value == 1
    printed = orjson.loads(result.stdout)
    assert printed["notes"] == ["B is invalid: worker 1 was lost"]
    assert next(each for each in printed["figures"] if each["figure"] == "ttft_ms p50")["differs"]
    table = CliRunner().invoke(app, ["compare", str(a), str(a)], standalone_mode=False)
    assert table.return_value == 0
    assert "ttft_ms p95" in table.stdout


def test_a_folder_of_no_run_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["compare", str(tmp_path), str(tmp_path)], standalone_mode=False)
    assert isinstance(result.exception, IsthmusError)
