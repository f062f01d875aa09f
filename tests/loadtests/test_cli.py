"""`isthmus loadtest run`: a bounded run, a report as table and JSON, and an exit code that tells."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest
from rich.console import Console
from typer.testing import CliRunner

from loadtests.cli import app, show
from loadtests.ledger import Ledger
from loadtests.streaming import Failure, Outcome
from shared.testing import answers
from shared.testing.upstream import Upstream


async def _run(upstream: Upstream, *arguments: str) -> tuple[int, str]:
    command = ["run", "--host", upstream.url, "--users", "2", "--duration", "2", *arguments]
    # CliRunner blocks, and the backend lives on this loop.
    result = await asyncio.to_thread(CliRunner().invoke, app, command, standalone_mode=False)
    return result.return_value, result.stdout


async def test_a_good_run_ends_with_zero_and_leaves_its_report(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    async with Upstream() as upstream:
        code, printed = await _run(upstream, "--json", "--report", str(report), "--route", "edge", "--max-tokens", "9")
        assert code == 0
        sent = upstream.exchanges[0]
    assert sent.headers["x-isthmus-route"] == "edge"
    assert orjson.loads(sent.body)["max_tokens"] == 9
    assert orjson.loads(printed) == orjson.loads(report.read_bytes())
    assert orjson.loads(printed)["succeeded"] > 0


async def test_failures_end_with_one() -> None:
    async with Upstream(default=lambda _: answers.failure(503)) as upstream:
        code, printed = await _run(upstream)
    assert code == 1
    assert "status 503" in printed


def test_the_table_shows_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    ledger = Ledger()
    ledger.add(Outcome(None, 200, 2500.0, ttft_ms=500.0, tpot_ms=None, output_tokens=1, tier="edge"))
    ledger.add(Outcome(Failure.NO_DONE, 200, 1.0))
    show(ledger.summary(2), Console(width=120))
    printed = capsys.readouterr().out
    assert "500.0" in printed
    assert "2500.0" in printed
    assert "1 good, 1 failed" in printed
    assert "no_done 1" in printed
