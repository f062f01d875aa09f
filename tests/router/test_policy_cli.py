"""`isthmus router policy | replay | feedback | audit query | audit export`, on files and against a running router."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from typer.testing import CliRunner

from router.cli import app
from router.policy_console import examples
from shared.errors import InvalidRequest, IsthmusError, NotFound, SettingsError
from shared.testing.upstream import Upstream
from tests.router.conftest import PERSONAL_TEXT, RunningRouter, StartRouter, eventually

POLICY = """
rules:
  - name: short
    match: {class: public}
    act: {output_cap_tokens: 7}
cases:
  - name: a short answer
    request: {text: hello}
    expect: {tier: edge, rule: short, output_cap_tokens: 7}
"""


def run_now(*arguments: str) -> Any:
    """The command as `isthmus router` runs it; `code` is what it ends with."""
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"}, standalone_mode=False)
    result.code = getattr(result.exception, "exit_code", None) or result.return_value or 0  # type: ignore[attr-defined]
    return result


async def run(*arguments: str) -> Any:
    return await asyncio.to_thread(run_now, *arguments)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


def test_the_shipped_examples_pass_their_cases() -> None:
    """Three at least, with cases of their own each, and without an argument all of them are tried."""
    assert len(examples()) >= 3
    shown = run_now("policy", "test", "--json")
    assert shown.code == 0, shown.output
    tried = orjson.loads(shown.output)
    assert tried["failed"] == 0
    assert {Path(case["file"]) for case in tried["cases"]} == set(examples())


def test_a_verdict_is_a_word_and_no_markup(file: Path) -> None:
    shown = run_now("policy", "test", str(file))
    assert " ok" in shown.output and "[" not in shown.output


@pytest.mark.parametrize("path", examples(), ids=lambda path: path.stem)
def test_each_example_is_valid_and_can_be_shown(path: Path) -> None:
    assert run_now("policy", "check", str(path)).code == 0
    shown = run_now("policy", "show", str(path))
    assert shown.code == 0
    for rule in yaml.safe_load(path.read_text()).get("rules", ()):
        assert rule["name"] in shown.output


def test_times_are_shown_as_people_say_them(file: Path) -> None:
    times = '{days: [sat, sun], from: "22:00", until: "02:00"}'
    file.write_text(f"rules: [{{name: r, match: {{time: {times}}}, act: {{mode: fastest}}}}]\n")
    assert "sat, sun 22:00 to 02:00" in run_now("policy", "show", str(file)).output
    file.write_text("rules: [{name: r, match: {time: {from: 08:00}}, act: {mode: fastest}}]\n")
    assert "every day 08:00 to 24:00" in run_now("policy", "show", str(file)).output


def test_check_says_what_is_in_a_file(file: Path) -> None:
    shown = run_now("policy", "check", str(file), "--json")
    assert shown.code == 0
    assert {k: v for k, v in orjson.loads(shown.output).items() if k != "digest"} == {
        "file": str(file), "rules": 1, "cases": 1,
    }  # fmt: skip
    assert "valid, 1 rules, 1 cases" in run_now("policy", "check", str(file)).output


def test_check_refuses_with_line_and_advice(file: Path) -> None:
    file.write_text(POLICY.replace("match", "mach"))
    refused = run_now("policy", "check", str(file)).exception
    assert isinstance(refused, SettingsError)
    assert "line 4" in refused.message and "Did you mean match?" in refused.message


def test_keys_are_checked_against_the_settings(file: Path, tmp_path: Path) -> None:
    file.write_text("rules: [{name: r, match: {key: ap}, act: {mode: fastest}}]\n")
    assert run_now("policy", "check", str(file)).code == 0
    config = tmp_path / "isthmus.yaml"
    config.write_text(f"router: {{keys: [{{name: app, sha256: {'a' * 64}}}]}}\n")
    refused = run_now("policy", "check", str(file), "--config", str(config)).exception
    assert isinstance(refused, SettingsError) and "Did you mean app?" in refused.message


def test_show_without_a_file_shows_the_settings(tmp_path: Path, file: Path) -> None:
    config = tmp_path / "isthmus.yaml"
    config.write_text("router: {policy: {mode: only_edge}}\n")
    shown = run_now("policy", "show", "--config", str(config))
    assert "only_edge" in shown.output and "No rules" in shown.output
    config.write_text(f"router: {{policy: {{file: {file}}}}}\n")
    as_json = orjson.loads(run_now("policy", "show", "--config", str(config), "--json").output)
    assert [rule["name"] for rule in as_json["rules"]] == ["short"] and as_json["digest"].startswith("sha256:")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("tier: edge", "tier: cloud"), "tier is edge, expected cloud"),
        (("rule: short", "rule: null"), "rule is short, expected none"),
        (("tier: edge, rule", "never: edge, rule"), "edge is among the candidates"),
        (("output_cap_tokens: 7}\ncases", "output_cap_tokens: 8}\ncases"), "output_cap_tokens is 8, expected 7"),
    ],
)
def test_a_case_that_comes_out_otherwise_fails(file: Path, change: tuple[str, str], words: str) -> None:
    file.write_text(POLICY.replace(*change))
    shown = run_now("policy", "test", str(file))
    assert shown.code == 1
    assert words in shown.output and "1 cases, 1 failed" in shown.output


def test_cases_are_tried_with_what_their_file_looks_for(file: Path) -> None:
    own = (
        "patterns: [{kind: badge, pattern: 'EMP-[0-9]{4}'}]\n"
        "word_lists: [{kind: firm, words: [Orion, 凤凰], privacy_class: secret}]\n"
        "rules: [{name: firms, match: {class: secret, entities: firm}, act: {action: block}}]\n"
        "cases:\n"
        "- {name: a badge, request: {text: 'EMP-0007 is me'}, expect: {tier: edge, never: cloud}}\n"
        "- {name: a firm, request: {text: 在凤凰工作}, expect: {tier: none, rule: firms}}\n"
        "- {name: neither, request: {text: 'EMP and Ori'}, fleet: {edge: gone}, expect: {tier: cloud}}\n"
    )
    file.write_text(own)
    shown = run_now("policy", "test", str(file))
    assert shown.code == 0, shown.output
    assert "3 cases, 0 failed" in shown.output
    assert "looks for badge (personal), firm (secret)" in run_now("policy", "show", str(file)).output
    as_json = orjson.loads(run_now("policy", "show", str(file), "--json").output)
    assert as_json["own_kinds"] == {"badge": "personal", "firm": "secret"}


def test_a_file_without_cases_proves_nothing(file: Path) -> None:
    file.write_text("version: 1\n")
    shown = run_now("policy", "test", str(file))
    assert shown.code == 1 and "no case" in shown.output


@pytest.fixture
async def served(start_router: StartRouter, edge: Upstream) -> RunningRouter:
    router = await start_router()
    await router.report(edge)
    for text in ("hello", PERSONAL_TEXT, "again"):
        async with router.ask(text) as response:
            await response.read()
    await router.records(3)
    return router


@pytest.fixture
def config(served: RunningRouter, tmp_path: Path) -> str:
    path = tmp_path / "isthmus.yaml"
    key = served.audit_dir.parent / "audit.key"
    path.write_text(f"router: {{audit: {{dir: {served.audit_dir}, key_file: {key}}}}}\n")
    return str(path)


async def test_replay_shows_the_same_answer_in_words(served: RunningRouter, config: str) -> None:
    record = (await served.records(3))[1]
    for named in (record["decision_id"], record["request_id"]):
        shown = await run("replay", named, "--config", config)
        assert shown.code == 0, shown.output
        assert "the answer is the same" in shown.output and "This request holds personal data." in shown.output
    as_json = orjson.loads((await run("replay", record["decision_id"], "--config", config, "--json")).output)
    assert as_json["same"] and as_json["differences"] == []
    missing = await run("replay", "dec-none", "--config", config)
    assert isinstance(missing.exception, NotFound)


async def test_a_changed_record_is_not_replayed(served: RunningRouter, config: str) -> None:
    record = (await served.records(3))[0]
    [path] = served.audit_dir.glob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"prefer_edge"', b'"only_cloud"'))
    shown = await run("replay", record["decision_id"], "--config", config)
    assert isinstance(shown.exception, IsthmusError) and "was changed" in str(shown.exception)


async def test_query_finds_by_what_requests_were(served: RunningRouter, config: str) -> None:
    async def seqs(*arguments: str) -> list[int]:
        shown = await run("audit", "query", *arguments, "--json", "--config", config)
        assert shown.code == 0, shown.output
        return [orjson.loads(line)["seq"] for line in shown.output.splitlines()]

    assert await seqs() == [4, 3, 2]
    assert await seqs("--class", "personal") == [3]
    assert await seqs("--entity", "card", "--tier", "edge", "--backend", "edge-1", "--status", "200") == [3]
    assert await seqs("-n", "1") == [4]
    assert await seqs("--since", "1h") == [4, 3, 2]
    assert await seqs("--until", "2020-01-01") == []
    assert "No request" in (await run("audit", "query", "--outcome", "broken", "--config", config)).output
    bad = await run("audit", "query", "--since", "yesterday", "--config", config)
    assert isinstance(bad.exception, InvalidRequest)
    assert (await run("audit", "query", "--class", "persnal", "--config", config)).code == 2


async def test_export_writes_a_checked_log_once(served: RunningRouter, config: str, tmp_path: Path) -> None:
    whole, table = tmp_path / "log.jsonl", tmp_path / "log.csv"
    done = await run("audit", "export", "-o", str(whole), "--config", config)
    assert done.code == 0 and "4 records" in done.output
    assert whole.read_bytes() == next(served.audit_dir.glob("*.jsonl")).read_bytes()
    assert whole.stat().st_mode & 0o077 == 0
    done = await run("audit", "export", "-o", str(table), "--format", "csv", "--config", config)
    assert "3 records" in done.output
    assert len(table.read_text().splitlines()) == 4 and "4111" not in table.read_text()
    again = await run("audit", "export", "-o", str(table), "--config", config)
    assert isinstance(again.exception, SettingsError) and "exists" in str(again.exception)
    [path] = served.audit_dir.glob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"status":200', b'"status":500', 1))
    broken = await run("audit", "export", "-o", str(tmp_path / "x"), "--config", config)
    assert broken.code == 1 and "record 2" in broken.output and not (tmp_path / "x").exists()


async def test_feedback_is_kept_and_proposed_and_nothing_is_applied(served: RunningRouter, config: str) -> None:
    record = (await served.records(3))[1]
    digest = served.router.policies.policy.digest
    said = await run("feedback", record["decision_id"], "--class", "public", "--url", served.url)
    assert said.code == 0 and "should have been public" in said.output
    await eventually(lambda: b'"kind":"feedback"' in next(served.audit_dir.glob("*.jsonl")).read_bytes())
    assert "No rule" in (await run("policy", "propose", "--config", config)).output
    shown = await run("policy", "propose", "--least", "1", "--config", config)
    [rule] = yaml.safe_load(shown.output)
    assert rule["match"] == {"class": ["personal"], "only_entities": ["card"]} and rule["act"] == {"action": "any"}
    assert "lets out more than now" in shown.output
    assert served.router.policies.policy.digest == digest
    assert "should be public" in (await run("audit", "tail", "--config", config)).output
    assert (await run("feedback", "x", "--class", "unknown", "--url", served.url)).code == 2
