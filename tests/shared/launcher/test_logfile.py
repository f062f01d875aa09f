"""Log files of child programs: nothing is shown twice or lost, none grows without end."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.launcher.logfile import LogFile, error_line


def test_lines_come_once_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "edge.log"
    log = LogFile(path, limit_bytes=10**6)
    assert list(log.new_lines()) == []
    path.write_bytes(b"one\ntw")
    assert list(log.new_lines()) == [b"one"]
    with path.open("ab") as file:
        file.write(b"o\nthree\n")
    assert list(log.new_lines()) == [b"two", b"three"]
    assert list(log.new_lines()) == []


def test_a_file_over_its_bound_starts_again_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "edge.log"
    log = LogFile(path, limit_bytes=1000)
    with path.open("ab") as writer:
        for number in range(100):
            writer.write(f"line {number:04d} of many\n".encode())
            writer.flush()
            assert list(log.new_lines()) == [f"line {number:04d} of many".encode()]
            list(log.new_lines())
            assert path.stat().st_size <= 1000 + 100


def test_a_line_without_end_is_held_only_in_part(tmp_path: Path) -> None:
    path = tmp_path / "edge.log"
    log = LogFile(path, limit_bytes=10**9)
    path.write_bytes(b"x" * 3_000_000)
    for _ in range(20):
        assert list(log.new_lines()) == []
    with path.open("ab") as file:
        file.write(b"\nnext\n")
    first, second = log.new_lines()
    assert len(first) <= 4096
    assert second == b"next"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", None),
        ("\n \n", None),
        ("noise\nerror: Port 1 is taken.\n", "Port 1 is taken"),
        ("error: first\nerror: second\nTraceback\n", "second"),
        ('{"event": "a"}\nlast words\n{"event": "b"}\n', "last words"),
        ('{"event": "a"}\n', None),
        ("x" * 200_000 + "\nerror: late\n", "late"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_the_line_that_says_what_went_wrong(tmp_path: Path, text: str, line: str | None) -> None:
    path = tmp_path / "edge.log"
    path.write_text(text)
    assert error_line(path) == line
