"""Packages of several files from a server: split models and ONNX folders, pinned, resumed, bounded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.packages.library import Library
from edge.packages.sources.address import RemoteRules
from shared.errors import DigestMismatch, InvalidRequest, ModelCorrupt, NotFound
from shared.testing.models import write_gguf
from tests.edge.packages.formats import builders as build
from tests.edge.packages.sources.file_server import FileServer, serving
from tests.edge.packages.split_models import split


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving(FileServer(files={}, etag=None)) as server:
        yield server


def offer(server: FileServer, folder: Path, below: str) -> None:
    assert server.files is not None
    for path in folder.iterdir():
        server.files[f"{below}/{path.name}"] = path.read_bytes()


def library(tmp_path: Path, server: FileServer, **rules: int) -> Library:
    return Library(tmp_path / "models", remote=RemoteRules(hub_url=server.url, **rules))


@pytest.fixture
def whole(tmp_path: Path, server: FileServer) -> Path:
    """A model whose parts the server has."""
    whole = write_gguf(tmp_path / "whole.gguf")
    split(whole, tmp_path / "parts", (0, 3, 1), "Big")
    offer(server, tmp_path / "parts", "/o/n/resolve/v1/q4")
    return whole


def test_a_split_model_comes_by_any_of_its_parts(tmp_path: Path, server: FileServer, whole: Path) -> None:
    digest = hashlib.sha256(whole.read_bytes()).hexdigest()
    source = f"hf:o/n@v1/q4/Big-00002-of-00003.gguf#sha256={digest}"
    package = library(tmp_path, server).pull(source)
    assert (package.name, package.digest) == ("big", f"sha256:{digest}")
    asked = len(server.requests)
    assert library(tmp_path, server).pull(source) == package
    assert len(server.requests) == asked, "a pinned package that is whole is not fetched again"
    assert list((tmp_path / "models").rglob("partial-*")) == []


def test_a_split_model_of_other_bytes_than_pinned_changes_nothing(
    tmp_path: Path, server: FileServer, whole: Path
) -> None:
    with pytest.raises(DigestMismatch):
        library(tmp_path, server).pull(f"hf:o/n@v1/q4/Big-00001-of-00003.gguf#sha256={'0' * 64}")
    assert library(tmp_path, server).installed() == ()


def test_a_part_that_the_server_lacks_is_not_found(tmp_path: Path, server: FileServer, whole: Path) -> None:
    assert server.files is not None
    del server.files["/o/n/resolve/v1/q4/Big-00003-of-00003.gguf"]
    with pytest.raises(NotFound):
        library(tmp_path, server).pull("hf:o/n@v1/q4/Big-00001-of-00003.gguf")


def test_the_limit_counts_all_parts(tmp_path: Path, server: FileServer, whole: Path) -> None:
    largest = max(path.stat().st_size for path in (tmp_path / "parts").iterdir())
    with pytest.raises(InvalidRequest, match=r"edge\.sources\.limit"):
        library(tmp_path, server, limit_bytes=largest + 1).pull("hf:o/n@v1/q4/Big-00001-of-00003.gguf")


def test_an_onnx_package_comes_by_its_configuration(tmp_path: Path, server: FileServer) -> None:
    """Only what the package needs is asked for; what else lies there is not fetched."""
    folder = build.onnx_package(tmp_path / "onnx")
    offer(server, folder, "/o/n/resolve/main/cpu-int4")
    assert server.files is not None
    server.files["/o/n/resolve/main/cpu-int4/evil.so"] = b"\x7fELF"
    local = Library(tmp_path / "elsewhere").import_path(folder, "cpu-int4")
    pin = local.digest.removeprefix("sha256:")
    package = library(tmp_path, server).pull(f"hf:o/n/cpu-int4/genai_config.json#sha256={pin}")
    assert package.name == "cpu-int4"
    assert {file.path for file in package.manifest.files} <= {path.name for path in folder.iterdir()}
    assert package.digest == local.digest
    assert not any("evil" in path for path, _ in server.requests)
    with pytest.raises(DigestMismatch):
        library(tmp_path, server).pull(f"hf:o/n/cpu-int4/genai_config.json#sha256={'0' * 64}", name="other")


@pytest.mark.parametrize("what", ["configuration", "graph", "weights", "tokenizer"])
def test_a_remote_onnx_package_that_is_broken_is_refused_and_leaves_nothing(
    tmp_path: Path, server: FileServer, what: str
) -> None:
    folder = build.onnx_package(tmp_path / "onnx")
    if what == "configuration":
        config = json.loads((folder / "genai_config.json").read_text())
        config["model"]["decoder"]["session_options"]["custom_ops_library"] = "evil.so"
        (folder / "genai_config.json").write_text(json.dumps(config))
    else:
        name = {"graph": "model.onnx", "weights": "model.onnx.data", "tokenizer": "tokenizer.json"}[what]
        (folder / name).write_bytes((folder / name).read_bytes()[:-9])
    offer(server, folder, "/m")
    with pytest.raises(ModelCorrupt):
        library(tmp_path, server).pull(f"{server.url}/m/genai_config.json")
    assert library(tmp_path, server).installed() == ()
    assert list((tmp_path / "models").rglob("partial-*")) == []
