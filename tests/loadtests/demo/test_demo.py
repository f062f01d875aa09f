"""The demo finds the stack, plays every row in its situation, undoes what it changed, and its exit code tells."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from loadtests.demo import stack as demo_stack
from loadtests.demo.cli import app
from loadtests.demo.expectations import ROWS
from shared.errors import IsthmusError


async def _demo(*arguments: str) -> tuple[int, str]:
    result = await asyncio.to_thread(CliRunner().invoke, app, arguments, standalone_mode=False)
    assert result.exception is None, result.exception
    return result.return_value, result.stdout


async def _rows(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    code, printed = await _demo("--json", *arguments)
    return code, orjson.loads(printed)


async def test_every_row_is_as_policy_says_and_everything_is_put_back(scripted_stack: Any) -> None:
    code, rows = await _rows()
    assert code == 0
    assert [row["as_policy_says"] for row in rows] == [True] * len(ROWS)
    assert rows[0]["text"] == "Paris."
    assert rows[0]["ttft_ms"] > 0
    assert scripted_stack.calls == ["kill edge", "start edge", "kill cloud", "start cloud"]
    assert scripted_stack.killed == set()
    assert {105_000, 40_000} <= set(scripted_stack.temperatures)
    assert not (scripted_stack.sensors / "class").exists()


async def test_the_table_names_each_row(scripted_stack: Any) -> None:
    code, printed = await _demo()
    assert code == 0
    lines = [line for line in printed.splitlines() if line.endswith("│ ok     │")]
    assert len(lines) == len(ROWS)
    assert "privacy_unavailable" in printed
    assert "edge_unavailable" in printed


async def test_a_stack_without_cloud_skips_what_needs_one(scripted_stack: Any) -> None:
    scripted_stack.tiers = ("edge",)
    code, rows = await _rows()
    assert code == 0
    assert [row["prompt"] for row in rows if row["skipped"]] == ["public"] * 3
    assert {row["skipped"] for row in rows} == {None, "needs the cloud tier"}
    hot_card = next(row for row in rows if row["situation"] == "device critical" and not row["skipped"])
    assert (hot_card["status"], hot_card["code"]) == (503, "no_capacity")
    assert scripted_stack.calls == []


async def test_a_leak_is_seen_and_ends_with_one(scripted_stack: Any) -> None:
    scripted_stack.leaks = True
    code, rows = await _rows()
    assert code == 1
    wrong = [row for row in rows if row["as_policy_says"] is False]
    assert {(row["situation"], row["prompt"]) for row in wrong} == {
        ("normal", "card number, route cloud"),
        ("device critical", "card number"),
    }
    assert scripted_stack.killed == set(), "the stack is put back also when a row is wrong"


async def test_a_tier_that_does_not_come_back_is_an_error_and_the_rows_are_still_shown(
    scripted_stack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted_stack.stuck = True
    monkeypatch.setattr(demo_stack, "_BACK_LIMIT_S", {"edge": 0.3, "cloud": 0.3})
    result = await asyncio.to_thread(CliRunner().invoke, app, ["--json"], standalone_mode=False)
    assert isinstance(result.exception, IsthmusError)
    assert "the restarted edge tier took no work" in result.exception.message
    rows = orjson.loads(result.stdout)
    assert [row["as_policy_says"] for row in rows] == [True] * 7
    assert not (scripted_stack.sensors / "class").exists()


async def test_an_address_without_control_socket_plays_the_normal_rows(scripted_stack: Any) -> None:
    (scripted_stack.folder / "run/up.sock").unlink()
    code, rows = await _rows("--url", f"{scripted_stack.url}/v1")
    assert code == 0
    assert [row["skipped"] is None for row in rows] == [row.situation == "normal" for row in ROWS]


async def test_an_address_where_nobody_answers_ends_with_one() -> None:
    code, rows = await _rows("--url", "http://127.0.0.1:9")
    assert code == 1
    assert rows[0]["failure"] == "unreachable"
