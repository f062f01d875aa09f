"""The simulator held against runs: one that it made itself, one that turns into another, and what is no run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from typer.testing import CliRunner

from loadtests.cli import app
from loadtests.simulation.cloud import CloudModel
from loadtests.simulation.day import Day, Plan
from loadtests.simulation.deciding import EDGE, NOBODY
from loadtests.simulation.devices import DeviceClass
from loadtests.simulation.fitting import EdgeFit, fit_cloud, fit_edge
from loadtests.simulation.policies import named
from loadtests.simulation.requests import PERSONAL, PUBLIC, Asks
from loadtests.simulation.validation import validate
from loadtests.workload.arrivals import Shape, due_times
from shared.errors import IsthmusError

DURATION_S = 400.0
DEVICE = DeviceClass("d", 1.0, 300.0, 40.0, 1, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, base_ms=30.0)
CLOUD = CloudModel(base_ms=150.0, prefill_tokens_per_s=2_000.0, decode_tokens_per_s=25.0, full_slowdown=0.0)


def run_of(device: DeviceClass = DEVICE, cloud: CloudModel = CLOUD) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A run as `read_run` gives it, of a stack that is what the simulator takes it for."""
    at_s = np.array(list(due_times(Shape.CONSTANT, rate_per_s=1.0, duration_s=DURATION_S, seed=1)))
    size, dice = len(at_s), np.random.default_rng(7)
    personal = dice.random(size) < 0.05
    asks = Asks.plain(
        at_s=at_s,
        device=np.zeros(size, dtype=np.int64),
        prompt_tokens=dice.integers(20, 200, size),
        output_tokens=dice.integers(10, 60, size),
        privacy=np.where(personal, PERSONAL, PUBLIC),
        luck=np.ones(size),
        network_factor=np.ones(size),
    )
    plan = Plan(
        devices=1, hours=0.5, step_s=0.5, classes=(device,), cloud=cloud, queue_limit=16, spread_ratio=0.0, asks=asks
    )
    _, who, ttft = Day(plan, named("default")).outcomes()
    rows = []
    for place, tier in enumerate(who):
        if tier == NOBODY:
            continue
        speed = device.decode_tokens_per_s if tier == EDGE else cloud.decode_tokens_per_s
        output = int(asks.output_tokens[place])
        rows.append(
            {
                "number": place,
                "at_s": float(at_s[place]),
                "tier": "edge" if tier == EDGE else "cloud",
                "ttft_ms": float(ttft[place]),
                "tpot_ms": 1000.0 / speed,
                "total_ms": float(ttft[place]) + output * 1000.0 / speed,
                "prompt_tokens": int(asks.prompt_tokens[place]),
                "output_tokens": output,
                **({"canary": True} if personal[place] else {}),
            }
        )
    plan_row = {
        "loop": "open", "faults_asked": [], "route": None, "scenario": "chat", "model": "m", "seed": 1, "run_id": "r",
        "max_tokens": None, "canary_ratio": None,
    }  # fmt: skip
    look = {"backend_id": "d", "tier": "edge", "level": "nominal", "slots_total": 1, "queue_limit": 16}
    return {"plan": plan_row, "valid": True, "duration_s": DURATION_S, "looks": [look]}, rows


def test_speeds_are_found_again_although_requests_waited() -> None:
    _, rows = run_of()
    edge = fit_edge(rows, slots=1)
    assert edge.base_ms == pytest.approx(DEVICE.base_ms, rel=0.2)
    assert edge.prefill_tokens_per_s == pytest.approx(DEVICE.prefill_tokens_per_s, rel=0.1)
    assert edge.decode_tokens_per_s == pytest.approx(DEVICE.decode_tokens_per_s, rel=0.01)
    cloud = fit_cloud(rows).model
    assert cloud.base_ms == pytest.approx(CLOUD.base_ms, rel=0.1)
    assert cloud.decode_tokens_per_s == pytest.approx(CLOUD.decode_tokens_per_s, rel=0.01)


def test_what_others_cost_in_a_batch_is_found() -> None:
    """Tokens that take 10 ms alone and 1 ms more for each other open stream."""
    rows = []
    for place in range(200):
        others = place % 5
        start_s = 100.0 * (place // 5) + others * 0.1
        row = {"at_s": start_s, "tier": "cloud", "prompt_tokens": 50, "ttft_ms": 100.0, "tpot_ms": 10.0 + others}
        rows.append(row | {"total_ms": 50_000.0})
    model = fit_cloud(rows).model
    assert 1000.0 / model.decode_tokens_per_s == pytest.approx(10.0, rel=0.01)
    assert model.full_slowdown == pytest.approx(3.2, rel=0.05), "32 others cost 32 ms"


def test_a_stack_that_stays_as_it_is_is_foretold() -> None:
    report, rows = run_of()
    shares = {row["tier"] for row in rows}
    assert shares == {"edge", "cloud"}
    found = validate(report, rows, named("default"))
    assert found.holds, found.figures
    assert found.learnt_from > 50
    assert found.predicted > 50


def test_a_stack_that_turns_into_another_is_not() -> None:
    report, rows = run_of()
    _, slower = run_of(replace(DEVICE, decode_tokens_per_s=8.0, prefill_tokens_per_s=60.0))
    half = [row for row in rows if row["at_s"] < DURATION_S / 2] + [
        row for row in slower if row["at_s"] >= DURATION_S / 2
    ]
    assert not validate(report, half, named("default")).holds


@pytest.mark.parametrize(
    ("changes", "plan", "word"),
    [
        ({}, {"loop": "closed"}, "closed loop"),
        ({}, {"faults_asked": ["edge-dies"]}, "faults"),
        ({}, {"route": "edge"}, "one tier"),
        ({"valid": False}, {}, "invalid"),
        ({"looks": []}, {}, "exactly one edge device"),
        ({"duration_s": 1.0}, {}, "to learn from"),
    ],
)
def test_runs_that_cannot_be_held_against_are_refused(changes: dict[str, Any], plan: dict[str, Any], word: str) -> None:
    report, rows = run_of()
    report |= changes
    report["plan"] = report["plan"] | plan
    with pytest.raises(IsthmusError, match=word):
        validate(report, rows, named("default"))


def test_the_command_says_how_far_off_it_was(tmp_path: Path) -> None:
    report, rows = run_of()
    (tmp_path / "run.json").write_bytes(orjson.dumps(report))
    (tmp_path / "samples.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    result = CliRunner().invoke(app, ["validate", str(tmp_path), "--json"], standalone_mode=False)
    assert result.exception is None, result.exception
    printed = orjson.loads(result.stdout)
    assert result.return_value == (0 if printed["holds"] else 1)
    assert [each["figure"] for each in printed["figures"]] == ["edge share", "ttft_ms p50"]
    shown = CliRunner().invoke(app, ["validate", str(tmp_path)], standalone_mode=False)
    assert "within 20 %" in shown.stdout
    nothing = CliRunner().invoke(app, ["validate", str(tmp_path / "none")], standalone_mode=False)
    assert isinstance(nothing.exception, IsthmusError)


def test_factors_of_a_fit_are_around_one() -> None:
    _, rows = run_of()
    fits: list[Any] = [fit_edge(rows, 1), fit_cloud(rows)]
    assert isinstance(fits[0], EdgeFit)
    for fit in fits:
        assert 0.8 < float(np.mean(fit.factors)) < 1.2
