"""Checkpoints appear whole or not at all, once, and only from the bytes that were installed."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections import namedtuple
from pathlib import Path

import pytest

from cloud import checkpoint
from cloud.checkpoint import MANIFEST_FILE, Progress, digest_of, prepare
from cloud.package import Package, find
from shared.errors import BackendError, DigestMismatch, ModelCorrupt, NotFound, SettingsError
from shared.testing.models import write_gguf

BYTES = b"weights" * 1000


@pytest.fixture
def package(tmp_path: Path) -> Package:
    path = tmp_path / "store" / "model.gguf"
    path.parent.mkdir()
    path.write_bytes(BYTES)
    return Package("m", f"sha256:{hashlib.sha256(BYTES).hexdigest()}", path, len(BYTES), parameters=1000)


@pytest.fixture
def converted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Stands in for the conversion, which takes half a minute: the folders it was asked to fill."""
    folders: list[Path] = []

    def convert(package: Package, staging: Path, progress: Progress) -> None:
        folders.append(staging)
        progress("loading")
        staging.mkdir()
        (staging / "model.safetensors").write_bytes(b"s" * 64)
        (staging / "config.json").write_text("{}")

    monkeypatch.setattr(checkpoint, "_convert", convert)
    return folders


def test_it_is_made_once_and_says_what_it_came_from(package: Package, converted: list[Path], tmp_path: Path) -> None:
    steps: list[str] = []
    root = tmp_path / "checkpoints"
    made = prepare(package, root, steps.append)
    assert made.is_new
    assert made.folder == root / f"m-{package.digest[7:19]}"
    assert digest_of(str(made.folder)) == package.digest
    assert steps == ["hashing", "loading", "done"]
    again = prepare(package, root, steps.append)
    assert (again.folder, again.is_new) == (made.folder, False)
    assert len(converted) == 1
    assert [path.name for path in root.iterdir() if ".partial" in path.name] == []


def test_one_that_lost_a_file_is_made_again(package: Package, converted: list[Path], tmp_path: Path) -> None:
    folder = prepare(package, tmp_path / "c").folder
    (folder / "model.safetensors").write_bytes(b"short")
    assert prepare(package, tmp_path / "c").is_new
    assert (folder / "model.safetensors").stat().st_size == 64
    assert len(converted) == 2


def test_leftovers_of_an_interrupted_run_do_not_matter(package: Package, converted: list[Path], tmp_path: Path) -> None:
    leftover = tmp_path / "c" / f".m-{package.digest[7:19]}.partial"
    leftover.mkdir(parents=True)
    (leftover / "junk").write_text("x")
    made = prepare(package, tmp_path / "c")
    assert not (made.folder / "junk").exists()
    assert not leftover.exists()


def test_bytes_other_than_the_installed_ones_are_refused(
    package: Package, converted: list[Path], tmp_path: Path
) -> None:
    package.model_path.write_bytes(BYTES[:-1] + b"!")
    with pytest.raises(DigestMismatch):
        prepare(package, tmp_path / "c")
    assert converted == []
    package.model_path.unlink()
    with pytest.raises(ModelCorrupt):
        prepare(package, tmp_path / "c")


def test_a_full_disk_is_one_line_before_any_work(
    package: Package, converted: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 9, 1 << 20))
    with pytest.raises(SettingsError, match=r"too full: the checkpoint needs 64 MiB, 1 MiB are free"):
        prepare(package, tmp_path / "c")
    assert converted == []


def test_a_failed_conversion_leaves_nothing(package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(package: Package, staging: Path, progress: Progress) -> None:
        staging.mkdir()
        raise BackendError("ended")

    monkeypatch.setattr(checkpoint, "_convert", fail)
    with pytest.raises(BackendError):
        prepare(package, tmp_path / "c")
    assert [path.name for path in (tmp_path / "c").iterdir()] == [f".m-{package.digest[7:19]}.lock"]


def test_two_at_once_convert_once(package: Package, converted: list[Path], tmp_path: Path) -> None:
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda: results.append(prepare(package, tmp_path / "c").is_new)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False, False, False, True]
    assert len(converted) == 1


def test_a_root_that_cannot_be_made_is_one_line(package: Package, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SettingsError, match="cannot be used: not a directory"):
        prepare(package, tmp_path / "file" / "c")


def test_the_digest_is_read_from_checkpoints_alone(tmp_path: Path) -> None:
    assert digest_of(None) is None
    assert digest_of("org/model") is None
    assert digest_of(str(tmp_path)) is None
    (tmp_path / MANIFEST_FILE).write_text("{}")
    assert digest_of(str(tmp_path)) is None


def installed(models: Path, **changes: object) -> None:
    """A package as the edge tier's store lays it out."""
    digest = hashlib.sha256(BYTES).hexdigest()
    version = models / "m" / "versions" / "000001-0000000000000000"
    version.mkdir(parents=True)
    (version / "model.gguf").write_bytes(BYTES)
    manifest = {
        "version": 1,
        "name": "m",
        "digest": f"sha256:{digest}",
        "model": {"format": "gguf", "parameters": 9, "architecture": "llama"},
        "files": [{"path": "model.gguf", "sha256": digest, "size_bytes": len(BYTES)}],
    } | changes
    (version / "manifest.json").write_text(json.dumps(manifest))
    (models / "m" / "current").symlink_to("versions/000001-0000000000000000")


def test_an_installed_package_is_found_through_its_files(tmp_path: Path) -> None:
    installed(tmp_path)
    package = find(tmp_path, "m")
    assert package.model_path.read_bytes() == BYTES
    assert (package.size_bytes, package.parameters) == (len(BYTES), 9)
    with pytest.raises(NotFound, match="isthmus edge pull other"):
        find(tmp_path, "other")


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"digest": "sha256:" + "0" * 64},
        {"digest": "md5:1"},
        {"model": {"format": "onnx", "parameters": 9}},
        {"files": [{"path": "../../etc/passwd", "sha256": "0" * 64, "size_bytes": 1}]},
    ],
)
def test_a_manifest_that_cannot_be_trusted_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    installed(tmp_path, **changes)
    with pytest.raises(ModelCorrupt):
        find(tmp_path, "m")


@pytest.mark.cloud
def test_a_model_that_no_converter_knows_is_said_so(tmp_path: Path) -> None:
    """The real converter, on a file whose architecture it does not have."""
    path = write_gguf(tmp_path / "model.gguf", architecture="nosuchmodel")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    package = Package("m", f"sha256:{digest}", path, path.stat().st_size, parameters=1000)
    with pytest.raises(Exception, match="cannot be converted") as caught:
        prepare(package, tmp_path / "c")
    assert type(caught.value).__name__ == "UnsupportedArchitecture"
