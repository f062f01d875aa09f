"""`isthmus loadtest run`: a bounded run, its folder of reports, and an exit code that tells."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import orjson
import pytest
from typer.testing import CliRunner

from loadtests.cli import INVALID, MISSED, app, seconds_of
from shared.errors import SettingsError
from shared.testing import answers
from shared.testing.answers import Answer
from shared.testing.upstream import Upstream


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISTHMUS_HOME", str(tmp_path / "home"))
    # How late the generator wakes up on a busy machine is not what these tests are about.
    monkeypatch.setenv("ISTHMUS__LOADTEST__TRUTH__LAG_MS", "60000")


async def _run(upstream: Upstream, *arguments: str) -> tuple[int, str]:
    command = ["run", "chat", "--host", upstream.url, "--users", "2", "--duration", "2", *arguments]
    # CliRunner blocks, and the backend lives on this loop.
    result = await asyncio.to_thread(CliRunner().invoke, app, command, standalone_mode=False)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.return_value, result.stdout


async def test_a_good_run_ends_with_zero_and_leaves_its_reports(tmp_path: Path) -> None:
    copy, out = tmp_path / "report.json", tmp_path / "out"
    options = ("--json", "--report", str(copy), "--out", str(out), "--route", "edge", "--max-tokens", "9")
    async with Upstream() as upstream:
        code, printed = await _run(upstream, *options)
        sent = upstream.exchanges[0]
    assert code == 0, printed
    assert sent.headers["x-isthmus-route"] == "edge"
    assert orjson.loads(sent.body)["max_tokens"] == 9
    report = orjson.loads(printed)
    assert report == orjson.loads(copy.read_bytes()) == orjson.loads((out / "run.json").read_bytes())
    assert report["succeeded"] > 0
    assert (report["valid"], report["passed"], report["leaks"]) == (True, True, 0)
    assert len((out / "samples.jsonl").read_bytes().splitlines()) == report["requests"]
    suite = ElementTree.parse(out / "junit.xml").getroot()
    assert suite.get("failures") == "0"
    assert int(suite.get("tests", "0")) == len(report["objectives"]) + 1
    page = (out / "report.html").read_text()
    assert page.count("<svg") == 6
    assert "http://www" not in page.replace(upstream.url, "")


def _from_the_cloud(_: object) -> Answer:
    answer = answers.stream("Pa", "ris")
    return Answer(headers={**answer.headers, "x-isthmus-tier": "cloud"}, writes=answer.writes)


async def test_a_missed_objective_ends_with_one_and_is_a_failed_case(tmp_path: Path) -> None:
    slo = tmp_path / "slo.yaml"
    slo.write_text("objectives:\n  - {measure: ttft_ms, point: p95, at_most: 0.001}\n")
    async with Upstream() as upstream:
        code, printed = await _run(upstream, "--slo", str(slo), "--out", str(tmp_path / "out"))
    assert code == MISSED
    assert "missed ttft_ms p95 at most 0.001" in printed
    junit = (tmp_path / "out" / "junit.xml").read_text()
    assert 'failures="1"' in junit
    assert "ttft_ms p95 at most 0.001" in junit


async def test_what_the_wrong_tier_answered_fails_and_personal_data_among_it_is_a_leak(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ISTHMUS__LOADTEST__CANARY_RATIO", "0.5")
    async with Upstream(default=_from_the_cloud) as upstream:
        # The first two requests of this seed are one with a canary and one without.
        code, printed = await _run(upstream, "--json", "--seed", "1", "--route", "edge")
    report = orjson.loads(printed)
    assert code == MISSED
    assert set(report["failures"]) == {"privacy_violation", "wrong_tier"}
    assert report["privacy_violations"] == report["canaries"] > 0
    assert report["leaks"] == report["leaked_bytes_by_answers"] > report["canaries"] * 16
    assert report["total_ms"] == {"count": 0}


async def test_failures_miss_the_shipped_objectives() -> None:
    async with Upstream(default=lambda _: answers.failure(503)) as upstream:
        code, printed = await _run(upstream)
    assert code == MISSED
    assert "status 503" in printed
    assert "missed steady ttft_ms p50 at most 15000 (seen nothing measured)" in printed


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        (("nowhere",), "SCENARIO"),
        (("chat", "--duration", "0s"), "--duration"),
        (("chat", "--duration", "nan"), "--duration"),
        (("chat", "--slo", "missing.yaml"), "--slo"),
        (("chat", "--fault", "earthquake"), "--fault"),
        (("chat", "--users", "0"), "loadtest.users"),
        (("chat", "--rate", "-1"), "loadtest.rate_per_s"),
        (("chat", "--rate", "nan"), "loadtest.rate_per_s"),
        (("chat", "--rate", "inf"), "loadtest.rate_per_s"),
        (("chat", "--report", "no/such/folder/report.json"), "--report"),
        (("chat", "--host", "ftp://x"), "loadtest.host"),
        (("chat", "--host", "http://127.0.0.1:9", "--fault", "heat-ramp", "--duration", "1s"), "--fault"),
        (("adapters", "--host", "http://127.0.0.1:9", "--duration", "1s"), "loadtest.adapters"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_sent(arguments: tuple[str, ...], param: str) -> None:
    result = CliRunner().invoke(app, ["run", *arguments], standalone_mode=False)
    assert isinstance(result.exception, SettingsError)
    assert result.exception.param == param


def test_runs_are_never_mixed_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    result = CliRunner().invoke(app, ["run", "chat", "--out", str(tmp_path)], standalone_mode=False)
    assert isinstance(result.exception, SettingsError)
    assert result.exception.param == "--out"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("120s", 120), ("2m", 120), ("1.5h", 5_400), ("1d", 86_400), (" 3s ", 3)]
)
def test_durations_have_units(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "-1s", "1w", "1e9", "s", "0.2", "1 0", "∞"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(SettingsError):
        seconds_of(text)


def test_exit_codes_differ() -> None:
    assert len({0, MISSED, INVALID}) == 3


def test_the_shipped_scenarios_are_listed() -> None:
    printed: Any = CliRunner().invoke(app, ["scenarios"]).stdout
    for name in ("mixed", "chat", "rag", "agent", "completions", "embeddings", "adapters", "privacy"):
        assert f"\n{name} " in f"\n{printed}"


def test_the_shipped_scenarios_are_described_as_json() -> None:
    listed = {each["name"]: each for each in orjson.loads(CliRunner().invoke(app, ["scenarios", "--json"]).stdout)}
    assert listed["mixed"]["mix"]["rag"] == 10
    assert listed["rag"]["lengths_tokens"]["rag"]["prompt"]["median"] == 700
    assert listed["chat"]["canary_ratio"] == 0.05
