"""`isthmus edge inspect`, `convert`, `pull` and `plan` as an operator types them, wrong inputs included."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge.packages.package import Package
from shared.testing.models import write_gguf
from tests.edge.packages.formats import builders as build


def edge(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ISTHMUS_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-P", "-m", "shared.cli", "edge", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def one_line(result: subprocess.CompletedProcess[str], *words: str) -> None:
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    assert all(word in lines[0] for word in words), lines[0]
    assert result.returncode != 0


def test_inspect_says_what_it_is_and_what_runs_it(tmp_path: Path) -> None:
    result = edge(tmp_path, "inspect", str(build.mlpackage(tmp_path / "m.mlpackage")), "--json")
    assert result.returncode == 0, result.stderr
    value = json.loads(result.stdout)
    assert value["format"] == "coreml"
    assert value["runtime"]["served_by_this_agent"] is False
    assert value["details"]["functions"] == ["main"]
    text = edge(tmp_path, "inspect", str(write_gguf(tmp_path / "m.gguf")))
    assert "gguf" in text.stdout
    assert "llama.cpp" in text.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inspect", "nothing"], ["does not exist"]),
        (["inspect", "file.txt"], ["no package of a known format"]),
        (["import", "m.mlpackage"], ["Core ML", "no engine"]),
        (["convert", "nothing"], ["no folder"]),
        (["convert", "empty"], ["config.json", "safetensors"]),
        (["convert", "code"], ["Python code"]),
        (["convert", "mapped"], ["auto_map"]),
        (["pull", "http://192.0.2.1/m.gguf"], ["Plain HTTP", "edge.sources.allow_http"]),
        (["pull", "https://user:word@a.example/m.gguf"], ["user name"]),
        (["pull", "hf:owner/name/m.gguf"], ["edge.sources.hub_url"]),
        (["pull", "https://a.example/m.gguf#sha256=12"], ["64 hexadecimal"]),
    ],
)
def test_wrong_input_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.txt").write_text("text")
    build.mlpackage(tmp_path / "m.mlpackage")
    for name in ("empty", "code", "mapped"):
        (tmp_path / name).mkdir()
    for name in ("code", "mapped"):
        (tmp_path / name / "model.safetensors").touch()
    (tmp_path / "code" / "config.json").write_text("{}")
    (tmp_path / "code" / "modeling.py").touch()
    (tmp_path / "mapped" / "config.json").write_text('{"auto_map": {"AutoModel": "modeling.Model"}}')
    result = edge(tmp_path / "home", *arguments)
    one_line(result, *words)
    assert "word@" not in result.stderr


def test_missing_build_tools_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edge.packages import onnx_build
    from shared.errors import SettingsError

    monkeypatch.setattr(onnx_build, "_TOOLS", ("no_such_tool_here",))
    with pytest.raises(SettingsError) as refused:
        onnx_build.require_tools()
    assert refused.value.message == (
        "Building ONNX packages needs no_such_tool_here, which is not installed: "
        "pip install 'isthmus[edge,onnx,onnx-convert]'"
    )


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_the_plan_of_an_onnx_package_is_the_one_that_is_served(onnx_package: Package, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "models").symlink_to(onnx_package.folder.parents[2])
    result = edge(home, "plan", onnx_package.name, "--memory", "1GiB", "--json")
    assert result.returncode == 0, result.stderr
    value = json.loads(result.stdout)
    assert value["kv_type"] == "f32"
    assert value["lines"]["kv_bytes"] == 46_080 * value["context_tokens"]
    assert sum(value["lines"].values()) == value["total_bytes"] <= 1 << 30
    for option in (["--kv-type", "q8_0"], ["--draft", "x"], ["--adapters", "1"], ["--measure"]):
        one_line(edge(home, "plan", onnx_package.name, *option), "ONNX package")
    one_line(edge(home, "plan", onnx_package.name, "--memory", "512MiB"), "bytes are free")
