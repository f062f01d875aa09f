"""`isthmus doctor`: what an installed tier lacks fails, what is only absent is a note, and each says what to do."""

from __future__ import annotations

import ctypes
import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from shared import cli
from shared.doctor import machine, packages
from shared.doctor.finding import Finding, Verdict, is_failure
from shared.extras import TIER_EXTRAS, Extra, Installed

ALL = frozenset(TIER_EXTRAS)


def _found(subject: str, installed: frozenset[str] = ALL) -> Finding:
    (finding,) = [each for each in machine.check(installed, None) if each.subject == subject]
    return finding


def test_json_is_complete_and_its_code_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["doctor", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert caught.value.code == (0 if answer["ok"] else 1)
    assert {each["tier"] for each in answer["findings"]} >= {"shared", "edge", "router"}
    assert all(set(each) == {"tier", "subject", "verdict", "found", "advice"} for each in answer["findings"])
    assert all(each["advice"] for each in answer["findings"] if each["verdict"] != "ok")


def test_the_table_names_everything_and_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SystemExit):
        cli.main(["doctor"])
    page = capsys.readouterr().out
    assert "Python" in page
    assert "redis" in page


def test_a_missing_requirement_of_an_installed_tier_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Extra(
        "edge",
        (Installed("xllamacpp==1", "xllamacpp", "1", fits=True), Installed("numpy>=2", "numpy", None, fits=False)),
    )
    monkeypatch.setattr(packages, "extra_of", lambda name: broken if name == "edge" else Extra(name, ()))
    findings = list(packages.check())
    assert is_failure(findings)
    (missing,) = [each for each in findings if each.verdict is Verdict.MISSING]
    assert (missing.tier, missing.subject, missing.found) == ("edge", "numpy>=2", "absent")
    assert missing.advice == "pip install 'isthmus[edge]'"


def test_a_tier_that_is_not_installed_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "extra_of", lambda name: Extra(name, ()))
    findings = list(packages.check())
    assert not is_failure(findings)
    assert {each.tier for each in findings if each.found == "not installed"} == set(TIER_EXTRAS)


@pytest.mark.parametrize("version", [None, "1.45.2"])
def test_the_extra_for_traces_is_named(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    exporter = "opentelemetry-exporter-otlp-proto-http"
    otel = Extra("otel", (Installed(f"{exporter}>=1.45", exporter, version, fits=version is not None),))
    monkeypatch.setattr(packages, "extra_of", lambda name: otel if name == "otel" else Extra(name, ()))
    (found,) = [each for each in packages.check() if "otel" in f"{each.subject} {each.advice}" or each.found == version]
    told = {None: ("extra otel", Verdict.NOTE), "1.45.2": (f"{exporter}>=1.45", Verdict.OK)}
    assert (found.subject, found.verdict) == told[version]


def test_a_command_that_cannot_be_loaded_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        name, value = "edge", "edge.cli:app"

        def load(self) -> Any:
            raise RuntimeError("canary")

    monkeypatch.setattr(packages, "entry_points", lambda group: [Broken()])
    (finding,) = [each for each in packages.check() if each.subject == "isthmus edge"]
    assert "canary" not in finding.found
    assert finding.verdict in (Verdict.MISSING, Verdict.NOTE)


def test_a_machine_without_compiler_fails_for_the_cloud_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert _found("C++ compiler").verdict is Verdict.MISSING
    assert [each for each in machine.check(ALL - {"cloud"}, None) if each.subject == "C++ compiler"] == []
    assert _found("redis-server").verdict is Verdict.NOTE


def test_a_machine_without_openmp_fails_for_the_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: str) -> None:
        raise OSError

    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert _found("libgomp.so.1").verdict is Verdict.MISSING
    assert "libgomp1" in (_found("libgomp.so.1").advice or "")


@pytest.mark.parametrize(("version", "verdict"), [("3.10.1", "missing"), ("3.11.0", "ok"), ("3.12.9", "ok"),
                                                  ("3.13.0", "missing"), ("4.11.0", "missing")])  # fmt: skip
def test_only_supported_pythons_pass(monkeypatch: pytest.MonkeyPatch, version: str, verdict: str) -> None:
    monkeypatch.setattr(machine.platform, "python_version_tuple", lambda: tuple(version.split(".")))
    assert _found("Python").verdict == verdict


def test_little_memory_and_disk_are_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 10**6}))
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: type("Disk", (), {"free": 10**6}))
    findings = list(machine.check(ALL, None))
    assert {each.tier for each in findings if each.subject == "memory" and each.verdict is Verdict.NOTE} == {
        "edge",
        "cloud",
    }
    assert [each.verdict for each in findings if each.subject == "disk"] == [Verdict.NOTE]


def test_a_taken_port_is_a_note_with_the_setting(free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("ISTHMUS__ROUTER__PORT", str(port))
    assert _found(f"port {port}").verdict is Verdict.OK
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        finding = _found(f"port {port}")
    assert finding.verdict is Verdict.NOTE
    assert "router.port" in (finding.advice or "")


def test_a_model_that_is_there_is_seen(isolated_environment: Path) -> None:
    models = [each for each in machine.check(ALL, None) if each.subject == "model"]
    assert [each.verdict for each in models] == [Verdict.NOTE, Verdict.NOTE]
    made = isolated_environment / "models" / "smollm2-135m-instruct"
    made.mkdir(parents=True)
    (made / "current").write_text("1")
    models = [each for each in machine.check(ALL, None) if each.subject == "model"]
    assert [each.verdict for each in models] == [Verdict.OK, Verdict.NOTE]


def test_a_settings_file_that_a_tier_would_refuse_is_found(tmp_path: Path) -> None:
    config = tmp_path / "isthmus.yaml"
    config.write_text("router:\n  policy:\n    actoins: {}\nedge:\n  slots: 2\n")
    found = {each.tier: each for each in machine.check(ALL, config) if each.subject == "settings"}
    assert {"up", "edge", "router", "cloud", "loadtest"} <= found.keys()
    assert found["router"].verdict is Verdict.MISSING
    assert "actoins" in (found["router"].advice or "")
    assert found["edge"].verdict is Verdict.OK
    found = {each.tier: each for each in machine.check(ALL - {"router"}, config) if each.subject == "settings"}
    assert "router" not in found
