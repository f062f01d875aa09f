"""What is checked before anything starts, and what is left after anything ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cloud import supervisor
from cloud.processes import MARK, marked, sweep
from cloud.settings import CloudSettings
from cloud.supervisor import MAX_TEMP_DIR_BYTES, Record, check_machine, choose_temp_dir, clean_up, driver_environment
from shared.errors import SettingsError
from shared.settings import home, load

_SLEEPER = "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], "
_SLEEPER += "start_new_session=True); print(p.pid, flush=True); time.sleep(600)"


def settings_of(**section: object) -> CloudSettings:
    return load(CloudSettings, "cloud", None, **section)


@contextmanager
def run_of_two(run_id: str) -> Iterator[list[int]]:
    """A process and a child in another session, both with the mark of `run_id`."""
    with subprocess.Popen(
        [sys.executable, "-c", _SLEEPER], env={**os.environ, MARK: run_id}, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            yield [parent.pid, child]
        finally:
            sweep(run_id)


def test_a_run_is_found_and_ended_whole_and_no_other_is_touched() -> None:
    with run_of_two("run-a") as first, run_of_two("run-b") as second:
        assert sorted(p.pid for p in marked("run-a")) == sorted(first)
        assert sweep("run-a") == 2
        assert marked("run-a") == []
        assert sorted(p.pid for p in marked("run-b")) == sorted(second)


def test_the_next_start_cleans_up_after_one_that_was_killed(tmp_path: Path) -> None:
    sockets = tmp_path / "ray"
    sockets.mkdir()
    (sockets / "plasma_store").write_text("")
    with run_of_two("stale"):
        (tmp_path / "run.json").write_text(Record(run_id="stale", temp_dir=str(sockets)).model_dump_json())
        clean_up(tmp_path)
        assert marked("stale") == []
    assert not sockets.exists()
    assert not (tmp_path / "run.json").exists()
    clean_up(tmp_path)  # nothing to do is fine too


def test_socket_paths_stay_within_their_limit(tmp_path: Path) -> None:
    short = Path("/x/run/cloud")
    long = tmp_path / ("d" * 80)
    longest = b"/session_2026-11-29_18-49-08_123456_1234567/sockets/plasma_store"
    for folder in (long,):
        chosen = choose_temp_dir(settings_of(), folder)
        assert len(os.fsencode(chosen)) <= MAX_TEMP_DIR_BYTES
        assert len(os.fsencode(chosen) + longest) <= 107
        chosen.rmdir()
    assert len(os.fsencode(short / "ray")) <= MAX_TEMP_DIR_BYTES


@pytest.mark.parametrize("folder", ["relative", "/" + "x" * 60])
def test_a_temp_dir_that_cannot_work_is_refused(folder: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        choose_temp_dir(settings_of(ray={"temp_dir": folder}), tmp_path)
    assert caught.value.param == "cloud.ray.temp_dir"


def test_a_missing_compiler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(SettingsError, match=r"needs a C\+\+ compiler"):
        check_machine(settings_of())
    check_machine(settings_of(accelerator={"kind": "gpu"}))


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor.importlib.util, "find_spec", lambda name: None if name == "vllm" else object())
    with pytest.raises(SettingsError, match=r"not installed here \(vLLM missing\)"):
        check_machine(settings_of())


def test_a_taken_port_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "check_machine", lambda settings: None)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SettingsError, match=f"Port {port} on 127.0.0.1 is already in use"):
            supervisor.serve(settings_of(port=port))


def test_one_home_runs_one_cloud_tier(
    isolated_environment: Path, monkeypatch: pytest.MonkeyPatch, free_port: Callable[[], int]
) -> None:
    monkeypatch.setattr(supervisor, "check_machine", lambda settings: None)
    folder = isolated_environment / "run" / "cloud"
    with supervisor._locked(folder), pytest.raises(SettingsError, match="already runs"):
        supervisor.serve(settings_of(port=free_port()))


def test_a_model_that_is_not_installed_is_said_before_ray_starts(
    monkeypatch: pytest.MonkeyPatch, free_port: Callable[[], int]
) -> None:
    monkeypatch.setattr(supervisor, "check_machine", lambda settings: None)
    with pytest.raises(Exception, match="isthmus edge pull smollm2-135m-instruct"):
        supervisor.serve(settings_of(port=free_port()))


def test_the_cluster_keeps_to_itself(tmp_path: Path) -> None:
    variables = driver_environment(Record(run_id="r", temp_dir="/t"), tmp_path)
    assert variables["RAY_AUTH_MODE"] == "token"
    token = Path(variables["RAY_AUTH_TOKEN_PATH"])
    assert token.stat().st_mode & 0o777 == 0o600
    assert len(token.read_text()) == 64
    assert token.read_text() not in variables.values()
    assert variables["RAY_USAGE_STATS_ENABLED"] == "0"
    assert variables["VLLM_NO_USAGE_STATS"] == "1"
    assert variables[MARK] == "r"
    assert variables["RAY_TMPDIR"] == variables["TMPDIR"] == "/t"


def test_the_cluster_keeps_bytecode_and_what_it_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch of the caller's own would have each of its processes compile thousands of modules at every start."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    variables = driver_environment(Record(run_id="r", temp_dir="/t"), tmp_path)
    assert "PYTHONDONTWRITEBYTECODE" not in variables
    assert variables["VLLM_CACHE_ROOT"].startswith(str(home() / "cache"))
