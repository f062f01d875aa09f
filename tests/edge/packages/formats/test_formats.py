"""Every format is recognised as itself alone; what runs elsewhere, is unknown or leads astray is refused by name."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from edge.packages.formats.files import opened_candidate
from edge.packages.formats.registry import FORMATS, require_served
from edge.packages.library import Library
from shared.errors import UnsupportedArchitecture
from tests.edge.packages.formats import builders as build
from tests.edge.packages.formats.reading import MAKERS, read, refusal, wrote


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_each_entry_of_the_table_recognises_its_own_alone(name: str, tmp_path: Path) -> None:
    path = MAKERS[name](tmp_path)
    with opened_candidate(path) as files:
        assert [entry.name for entry in FORMATS.values() if entry.recognise(files)] == [name]
    found, _ = read(path)
    assert found.name == name
    assert found.runtime.remedy


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_looking_at_a_package_loads_no_runtime(name: str, tmp_path: Path) -> None:
    before = set(sys.modules)
    read(MAKERS[name](tmp_path))
    loaded = {module.partition(".")[0] for module in set(sys.modules) - before}
    assert not loaded & {entry.runtime.module for entry in FORMATS.values()}


@pytest.mark.parametrize("name", ["executorch", "coreml", "mlc"])
def test_what_runs_elsewhere_is_not_installed(name: str, tmp_path: Path) -> None:
    path = MAKERS[name](tmp_path)
    with pytest.raises(UnsupportedArchitecture, match=r"no engine for it"):
        Library(tmp_path / "models").import_path(path, "other")
    assert not FORMATS[name].runtime.serves
    assert Library(tmp_path / "models").installed() == ()


def test_unknown_things_are_named(tmp_path: Path) -> None:
    assert refusal(wrote(tmp_path / "x.bin", b"something")).message.startswith("This is no package of a known format")
    (tmp_path / "folder").mkdir()
    assert refusal(tmp_path / "folder").param == "format"


def test_links_are_not_followed(tmp_path: Path) -> None:
    folder = build.onnx_package(tmp_path / "onnx")
    (folder / "tokenizer.json").rename(tmp_path / "outside.json")
    (folder / "tokenizer.json").symlink_to(tmp_path / "outside.json")
    assert refusal(folder).param == "tokenizer.json"


def test_require_served_lets_the_others_pass() -> None:
    for name in ("gguf", "onnx"):
        require_served(FORMATS[name])


def test_too_many_files(tmp_path: Path) -> None:
    folder = build.mlc_package(tmp_path / "mlc")
    for index in range(600):
        (folder / f"f{index}").touch()
    assert refusal(folder).param == "files"


def test_a_pipe_in_a_package_does_not_block(tmp_path: Path) -> None:
    folder = build.mlc_package(tmp_path / "mlc")
    os.mkfifo(folder / "pipe")
    assert refusal(folder).param == "pipe"
