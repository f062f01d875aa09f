"""The load test against the real stack: every answer good, and times that are those of tokens."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest

from shared.testing.program import command

pytestmark = [pytest.mark.stack, pytest.mark.engine, pytest.mark.timeout(900)]


# No bound on a time: what this machine is busy with besides is no property of the stack.
OBJECTIVES = """
objectives:
  - {measure: failed_ratio, at_most: 0}
  - {measure: leaks, at_most: 0}
  - {measure: privacy_violations, at_most: 0}
  - {measure: wrong_tier, at_most: 0}
"""


def test_streaming_users_get_good_answers_from_the_real_stack(stack: Any, tmp_path: Path) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text(OBJECTIVES)
    options = f"--users 2 --duration 20 --max-tokens 6 --host {stack.url} --slo {slo} --json".split()
    done = subprocess.run(
        [*command(), "loadtest", "run", "chat", *options],
        env=stack.environment, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    report = orjson.loads(done.stdout)
    assert report["failed"] == 0
    assert report["succeeded"] >= 1
    assert set(report["tiers"]) <= {"edge", "cloud"}
    assert 0 < report["ttft_ms"]["p50"] < report["total_ms"]["p50"]
    assert report["tpot_ms"]["count"] > 0
    assert report["output_tokens_per_s"] > 0
