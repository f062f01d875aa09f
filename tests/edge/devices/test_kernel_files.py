"""What stands where the kernel has a file: read within a bound, never waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edge.devices.kernel_files import text_of


def test_text_is_stripped_and_bounded(tmp_path: Path) -> None:
    file = tmp_path / "temp"
    file.write_bytes(b" 45000\n")
    assert text_of(file) == "45000"
    file.write_bytes(b"9" * 1_000_000)
    assert len(text_of(file) or "") == 65_536
    file.write_bytes(b"\xff\x0045\n")
    assert text_of(file) == "\ufffd\x0045"


@pytest.mark.parametrize("written", [b"", b" \n"])
def test_an_empty_file_says_nothing(tmp_path: Path, written: bytes) -> None:
    (tmp_path / "temp").write_bytes(written)
    assert text_of(tmp_path / "temp") is None


@pytest.mark.timeout(10)
def test_what_is_no_file_says_nothing_and_holds_nobody_up(tmp_path: Path) -> None:
    """A folder, a link to itself, a pipe without a writer, and one whose writer is silent."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "loop", "gone", "pipe"):
        assert text_of(tmp_path / name) is None
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        assert text_of(tmp_path / "pipe") is None
    finally:
        os.close(writer)
