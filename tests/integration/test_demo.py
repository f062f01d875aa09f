"""`isthmus demo` on the running stack: every row as policy says, and the stack as it was before."""

from __future__ import annotations

import subprocess
from typing import Any

import orjson
import pytest

from shared.testing.program import command

pytestmark = [pytest.mark.stack, pytest.mark.ends(0), pytest.mark.engine, pytest.mark.timeout(1800)]


def test_the_demo_finds_every_row_as_policy_says(stack: Any) -> None:
    done = subprocess.run(
        [*command(), "demo", "--json"], env=stack.environment, capture_output=True, timeout=1000, check=False
    )
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    rows = orjson.loads(done.stdout)
    played = [row for row in rows if row["skipped"] is None]
    assert all(row["as_policy_says"] for row in played)
    if "cloud" in stack.tiers:
        assert len(played) == len(rows) == 8
    assert all(row["text"] for row in played if row["status"] == 200)
    assert {tier["state"] for tier in stack.state()["tiers"].values()} == {"ready"}
    assert not any(stack.home.glob("run/*/sensors/class"))
