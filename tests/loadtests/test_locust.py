"""The real locust binary against scripted backends: what it measures (LT-01) and how it counts faults (LT-03)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from shared.openai.sse import DONE
from shared.testing import answers
from shared.testing.answers import Answer, End, Write
from shared.testing.upstream import Upstream

ROOT = Path(__file__).parents[2]


async def locust(
    upstream: Upstream, folder: Path, *, run_s: int, users: int = 1, processes: int = 0, **settings: object
) -> dict[str, Any]:
    """Run locust headless for `run_s` seconds; return its own statistics and our report."""
    stats, report = folder / "locust.json", folder / "report.json"
    env = {name: value for name, value in os.environ.items() if not name.startswith("ISTHMUS__")}
    env |= {"PYTHONPATH": str(ROOT), "ISTHMUS__LOADTEST__REPORT": str(report)}
    env |= {f"ISTHMUS__LOADTEST__{name.upper()}": str(value) for name, value in settings.items()}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "locust", "-f", str(ROOT / "loadtests/locustfile.py")),
        *("--headless", "-H", upstream.url),
        *("-u", str(users), "-r", "50", "-t", f"{run_s}s", "-s", "5", "--json-file", str(folder / "locust")),
        *(("--processes", str(processes)) if processes else ()),
        cwd=folder,
        env=env,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, errors = await asyncio.wait_for(process.communicate(), run_s + 45)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert report.exists(), errors.decode()
    by_type = {entry["method"]: entry for entry in orjson.loads(stats.read_bytes())}
    return {"locust": by_type, "report": orjson.loads(report.read_bytes()), "log": errors.decode()}


def _slow_answer() -> Answer:
    """LT-01: headers after 10 ms, first content after 500 ms, the last chunk after 2,500 ms."""
    return Answer(
        headers=answers.EVENT_STREAM,
        headers_after_s=0.01,
        writes=(
            Write(answers.chunk(role="assistant", content="")),
            Write(answers.chunk(content="A"), after_s=0.49),
            Write(answers.chunk(content="B"), after_s=2.0),
            Write(answers.chunk(finish="stop") + answers.chunk(usage=2) + DONE),
        ),
    )


async def test_lt_01_first_content_and_total_are_separate_and_never_the_headers(tmp_path: Path) -> None:
    async with Upstream(default=lambda _: _slow_answer()) as upstream:
        result = await locust(upstream, tmp_path, run_s=4, users=3)
    report, entries = result["report"], result["locust"]
    assert report["failed"] == 0
    assert report["succeeded"] >= 3
    # No wait can be shorter than the script's; the upper sides leave room for a busy machine and still tell
    # first content from headers and from the end.
    assert report["ttft_ms"]["min"] >= 490
    assert report["ttft_ms"]["p50"] < 1500
    assert report["total_ms"]["min"] >= 2480
    assert report["total_ms"]["p50"] - report["ttft_ms"]["p50"] > 1500
    assert report["tpot_ms"]["p50"] > 1500
    assert set(entries) == {"ttft", "total", "tpot"}
    assert entries["ttft"]["min_response_time"] >= 490
    assert entries["total"]["min_response_time"] >= 2480


FAULTS: dict[str, Callable[[], Answer]] = {
    "connection_cut": lambda: answers.broken_stream(*"abcde", end=End.RESET, gap_s=0.01),
    "error_event": lambda: answers.broken_stream("a", error=True, done=True, end=End.CLEAN),
    "no_done": lambda: answers.stream("a", done=False),
    "stall": lambda: answers.broken_stream("a", end=End.STALL),
    "status 503": lambda: answers.failure(503),
}
OTHER_FAULTS: dict[str, Callable[[], Answer]] = {
    "connection_cut": lambda: answers.broken_stream("a", end=End.CUT),
    "connection_cut (before the status)": answers.hang_up,
    "error_event": lambda: answers.broken_stream(error=True, end=End.RESET),
    "no_done": answers.empty,
    "stall": answers.silence,
    "malformed": lambda: Answer(headers=answers.EVENT_STREAM, writes=(Write(b"data: <html>\n\n"),)),
    "status 400": lambda: answers.failure(400),
}


@pytest.mark.parametrize("faults", [FAULTS, OTHER_FAULTS])
async def test_lt_03_each_fault_is_one_failure_of_its_category(
    tmp_path: Path, faults: dict[str, Callable[[], Answer]]
) -> None:
    async with Upstream() as upstream:
        for fault in faults.values():
            upstream.script(fault(), answers.stream("good"))
        result = await locust(upstream, tmp_path, run_s=6, stall_s=0.8, failure_pause_s=0.05, think_s=0.2)
    report, entries = result["report"], result["locust"]
    expected: dict[str, int] = {}
    for label in faults:
        expected[label.partition(" (")[0]] = expected.get(label.partition(" (")[0], 0) + 1
    assert report["failures"] == expected
    assert report["succeeded"] >= len(faults), "the user's loop went on after each fault"
    assert entries["total"]["num_failures"] == len(faults)
    assert entries["total"]["num_none_requests"] == len(faults), "a failed answer has no time in the percentiles"
    assert entries["total"]["num_requests"] - len(faults) == report["succeeded"] == report["total_ms"]["count"]
    assert entries["ttft"]["num_failures"] == 0, "the failure is counted once, under the whole answer"
    assert report["total_ms"]["max"] < 800, "the stalled answer's time is in no percentile"
    assert "Traceback" not in result["log"]


async def test_a_refused_connection_is_its_own_category(tmp_path: Path) -> None:
    async with Upstream() as upstream:
        await upstream.refuse()
        result = await locust(upstream, tmp_path, run_s=2)
    assert set(result["report"]["failures"]) == {"unreachable"}
    assert result["report"]["succeeded"] == 0


async def test_workers_of_a_distributed_run_report_to_one_file(tmp_path: Path) -> None:
    async with Upstream() as upstream:
        result = await locust(upstream, tmp_path, run_s=4, users=4, processes=2, think_s=0.1, workers=2)
        answered = len(upstream.exchanges)
    assert result["report"]["failed"] == 0
    assert result["report"]["succeeded"] + result["report"]["unfinished"] == answered > 0
    assert [worker["finished"] for worker in result["report"]["generator"]["workers"]] == [True, True]
