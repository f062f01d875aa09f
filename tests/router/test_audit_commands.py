"""`isthmus router audit …`, `replay`, `feedback` and `policy propose` on what people give them: ids that are none, logs
that are not there, lines that no router wrote."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from router.audit.files import files_of
from router.audit.storage import AuditStorage
from router.cli import app
from shared.errors import BackendUnreachable, InvalidRequest, IsthmusError, NotFound, SettingsError
from shared.testing import answers
from shared.testing.answers import Answer, Write
from shared.testing.upstream import Upstream
from tests.router.conftest import RunningRouter, StartRouter

Run = Callable[..., Any]
_NO_IDS = ("", "dec-", "dec-0", "x" * 5_000, "…", "\udc80", '"', "../audit.key", "*", "null")


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def log_of(folder: Path, key: bytes, *records: dict[str, Any]) -> Path:
    """A log with these records, and the settings that point to it."""
    folder.mkdir()
    key_file = folder / "audit.key"
    key_file.write_bytes(key)
    storage = AuditStorage(folder / "log", key, file_bytes=1 << 20)
    if records:
        storage.append(records)
    storage.close()
    config = folder / "isthmus.yaml"
    config.write_text(f"router: {{audit: {{dir: {folder / 'log'}, key_file: {key_file}}}}}\n")
    return config


@pytest.fixture
async def served(start_router: StartRouter, edge: Upstream, tmp_path: Path) -> tuple[RunningRouter, Path, str]:
    """A router that answered once, its settings, and the id of that decision."""
    router = await start_router()
    await router.report(edge)
    async with router.ask() as response:
        await response.read()
    [record] = await router.records(1)
    config = tmp_path / "isthmus.yaml"
    key = router.audit_dir.parent / "audit.key"
    config.write_text(f"router: {{audit: {{dir: {router.audit_dir}, key_file: {key}}}}}\n")
    return router, config, record["decision_id"]


@pytest.mark.parametrize("given", _NO_IDS)
def test_replay_of_no_id_says_that_there_is_no_such_request(tmp_path: Path, given: str) -> None:
    config = log_of(tmp_path / "a", b"k" * 32, {"kind": "request", "decision_id": "dec-1", "request_id": "r"})
    fault = invoke("replay", given, "--config", str(config)).exception
    assert isinstance(fault, NotFound) and "no such request" in fault.message


@pytest.mark.parametrize("given", _NO_IDS)
async def test_feedback_on_no_id_is_refused_in_words(start_router: StartRouter, given: str) -> None:
    router = await start_router()
    said = await asyncio.to_thread(invoke, "feedback", given, "--class", "public", "--url", router.url)
    assert isinstance(said.exception, IsthmusError) and not isinstance(said.exception, BackendUnreachable)


async def test_a_decision_is_replayed_and_corrected_as_json_too(served: tuple[RunningRouter, Path, str]) -> None:
    router, config, decision_id = served
    again = await asyncio.to_thread(invoke, "replay", decision_id, "--config", str(config), "--json")
    assert again.exit_code == 0 and orjson.loads(again.output)["same"] is True
    kept = await asyncio.to_thread(
        invoke, "feedback", decision_id, "--class", "personal", "--url", router.url, "--json"
    )
    assert orjson.loads(kept.output)["class_said"] == "personal"
    wrong = await asyncio.to_thread(invoke, "feedback", decision_id, "--class", "unknown", "--url", router.url)
    assert wrong.exit_code == 2


@pytest.mark.parametrize("change", ["torn", "changed", "of another key", "no longer its policy"])
async def test_replay_names_what_is_wrong_with_a_record(served: tuple[RunningRouter, Path, str], change: str) -> None:
    router, config, decision_id = served
    [path] = files_of(router.audit_dir)
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if b'"kind":"request"' in line)
    if change == "torn":
        lines[at] = lines[at][: len(lines[at]) // 2] + b"\n"
    elif change == "changed":
        lines[at] = lines[at].replace(b'"status":200', b'"status":500')
    elif change == "of another key":
        (router.audit_dir.parent / "audit.key").write_bytes(b"x" * 32)
    else:
        lines = [line.replace(b'"stale_after_ms":', b'"stale_after_ms":1') for line in lines]
        lines[at] = path.read_bytes().splitlines(keepends=True)[at]
    path.write_bytes(b"".join(lines))
    said = await asyncio.to_thread(invoke, "replay", decision_id, "--config", str(config))
    words = "policy" if change == "no longer its policy" else "changed after it was written"
    assert isinstance(said.exception, IsthmusError) and words in said.exception.message
    for arguments in (("audit", "tail"), ("audit", "query"), ("policy", "propose"), ("audit", "tail", "--json")):
        shown = await asyncio.to_thread(invoke, *arguments, "--config", str(config))
        assert shown.exit_code == 0, (arguments, shown.exception)
    exported = router.audit_dir.parent / "out.jsonl"
    told = await asyncio.to_thread(invoke, "audit", "export", "-o", str(exported), "--json", "--config", str(config))
    assert orjson.loads(told.output)["fault"] and not exported.exists()


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "request"},
        {"kind": "request", "decision_id": 7, "attempts": "none", "decision": "no"},
        {"kind": "request", "attempts": [{}], "decision": {}, "at": "yesterday", "entities": [1]},
        {"kind": "feedback"},
        {"kind": "feedback", "about": 1, "class_found": "x", "class_said": [], "kinds": None, "key": None},
        {"kind": "policy"},
        {"kind": ["denied"], "at": 1e300},
        {},
    ],
)
def test_lines_that_no_router_wrote_stop_no_command(tmp_path: Path, line: dict[str, Any]) -> None:
    """They stand in the chain, as a bug or another version would leave them."""
    config = log_of(tmp_path / "a", b"k" * 32, line, {"kind": "pruned", "files": []})
    for arguments in (
        ("audit", "tail"), ("audit", "query"), ("audit", "query", "--class", "personal", "--since", "1d"),
        ("audit", "tail", "--json"), ("policy", "propose"), ("audit", "verify"),
        ("audit", "export", "-o", str(tmp_path / "a.jsonl")),
        ("audit", "export", "-o", str(tmp_path / "a.csv"), "--format", "csv"),
        ("audit", "export", "-o", str(tmp_path / "b.jsonl"), "--since", "1d"),
    ):  # fmt: skip
        shown = invoke(*arguments, "--config", str(config))
        assert shown.exit_code == 0, (arguments, shown.exception)


@pytest.mark.parametrize("garbage", [b"\n", b"\x00\xff\n", b"[1]\n", b'"x"\n', b'{"seq":1', b"[" * 5_000 + b"\n"])
def test_garbage_in_the_file_is_passed_over_and_found_by_verify(tmp_path: Path, garbage: bytes) -> None:
    config = log_of(tmp_path / "a", b"k" * 32, {"kind": "denied", "status": 401, "code": "c", "endpoint": "/"})
    [path] = files_of(tmp_path / "a" / "log")
    path.write_bytes(path.read_bytes() + garbage + path.read_bytes())
    shown = invoke("audit", "tail", "--config", str(config))
    assert shown.exit_code == 0 and "denied" in shown.output
    checked = invoke("audit", "verify", "--config", str(config), "--json")
    assert "line 2" in orjson.loads(checked.output)["fault"]


def test_an_empty_log_is_told_from_one_that_is_not_there(tmp_path: Path) -> None:
    config = log_of(tmp_path / "a", b"k" * 32)
    assert "The log is empty." in invoke("audit", "tail", "--config", str(config)).output
    assert "No request is like that." in invoke("audit", "query", "--config", str(config)).output
    assert invoke("audit", "tail", "--config", str(config), "--json").output == ""
    told = invoke("audit", "export", "-o", str(tmp_path / "x"), "--config", str(config), "--json")
    assert orjson.loads(told.output) == {"records": 0, "output": str(tmp_path / "x"), "format": "jsonl"}
    for gone in (shutil.rmtree, lambda folder: folder.write_text("")):
        gone(tmp_path / "a" / "log")
        for arguments in (("audit", "tail"), ("audit", "query"), ("policy", "propose"), ("replay", "dec-1")):
            fault = invoke(*arguments, "--config", str(config)).exception
            assert isinstance(fault, NotFound | SettingsError) and str(tmp_path / "a" / "log") in fault.message
    # Without its key a log can be read, and neither checked nor exported.
    (tmp_path / "a" / "audit.key").unlink()
    for arguments in (("audit", "verify"), ("audit", "export", "-o", str(tmp_path / "y"))):
        assert isinstance(invoke(*arguments, "--config", str(config)).exception, SettingsError)


@pytest.mark.parametrize("name", ["there", "no/such/folder/x", "", "f" * 300])
def test_an_export_that_cannot_be_written_says_so_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    config = log_of(tmp_path / "a", b"k" * 32, {"kind": "pruned", "files": []})
    (tmp_path / "there").write_text("kept")
    before = sorted(tmp_path.rglob("*"))
    fault = invoke("audit", "export", "-o", str(tmp_path / name), "--config", str(config)).exception
    assert isinstance(fault, SettingsError) and fault.param == "output"
    assert (tmp_path / "there").read_text() == "kept" and sorted(tmp_path.rglob("*")) == before


def test_a_full_disk_leaves_no_half_of_an_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = log_of(tmp_path / "a", b"k" * 32, *({"kind": "pruned", "files": [], "n": n} for n in range(50)))

    def full(*_: object) -> bool:
        raise OSError(28, "no space left")

    monkeypatch.setattr("router.audit_console._is_between", full)
    fault = invoke("audit", "export", "-o", str(tmp_path / "x"), "--config", str(config)).exception
    assert isinstance(fault, SettingsError) and "no space left" in fault.message
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "moment", ["999999d", "0001-01-01", "9999-12-31T23:59:59", "", "soon", "5", "2026-13-01", "1e9"]
)
def test_moments_that_no_calendar_has_are_refused_in_words(tmp_path: Path, moment: str) -> None:
    config = log_of(tmp_path / "a", b"k" * 32, {"kind": "pruned", "files": []})
    for option in ("--since", "--until"):
        shown = invoke("audit", "query", option, moment, "--config", str(config))
        assert shown.exit_code == 0 or isinstance(shown.exception, InvalidRequest), shown.exception


@pytest.mark.parametrize("url", ["http://127.0.0.1:none", "http://", "http://a b", "http://" + "ü" * 80, "http://[::1"])
def test_an_address_that_is_none_is_no_fault_of_the_program(url: str) -> None:
    fault = invoke("feedback", "dec-1", "--class", "public", "--url", url).exception
    assert isinstance(fault, IsthmusError)


@pytest.mark.parametrize("body", [b"[1]", b"nonsense", b"", b"7"])
async def test_what_answers_and_is_no_router_is_named_as_such(cloud: Upstream, body: bytes) -> None:
    cloud.default = lambda exchange: Answer(headers=answers.JSON, writes=(Write(body),))
    said = await asyncio.to_thread(invoke, "feedback", "dec-1", "--class", "public", "--url", cloud.url)
    assert isinstance(said.exception, BackendUnreachable)
