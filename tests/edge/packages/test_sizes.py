"""Sizes of files that come and go while they are counted, as those of a running pip do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edge.packages.sizes import file_sizes


def test_files_at_any_depth_and_a_file_itself(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one").write_bytes(b"1")
    (tmp_path / "a" / "b" / "two").write_bytes(b"22")
    (tmp_path / "three").write_bytes(b"333")
    assert sorted(file_sizes(tmp_path / "a", tmp_path / "three")) == [1, 2, 3]
    assert list(file_sizes(tmp_path / "absent")) == []


def test_a_link_counts_as_itself_wherever_it_leads(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "large").write_bytes(b"x" * 10_000)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "folder").symlink_to(tmp_path / "far")
    (tmp_path / "here" / "file").symlink_to(tmp_path / "far" / "large")
    (tmp_path / "here" / "lost").symlink_to(tmp_path / "nowhere")
    sizes = list(file_sizes(tmp_path / "here"))
    assert len(sizes) == 3
    assert sum(sizes) < 1_000


def test_a_file_removed_before_its_turn_is_left_out(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"333")
    sizes = file_sizes(tmp_path)
    assert next(sizes) == 3
    for path in tmp_path.iterdir():
        path.unlink()
    assert list(sizes) == []


def test_a_folder_removed_before_it_is_listed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip-unpack-1").mkdir()
    (tmp_path / "pip-unpack-1" / "part").write_bytes(b"22")
    (tmp_path / "stays").write_bytes(b"333")
    scan = os.scandir

    def scandir(path: str) -> object:
        if path.endswith("pip-unpack-1"):
            Path(path).rename(tmp_path.parent / "elsewhere")
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert list(file_sizes(tmp_path)) == [3]
