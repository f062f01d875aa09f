"""Readings of memory from a tree: the worse of machine and container counts, what cannot be read is not known."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.devices.pressure import read_pressure
from edge.memory.pressure import Pressure

MIB = 1 << 20


def tree(root: Path, **files: str) -> Path:
    """Write `files` below `root`; `__` in a name stands for a slash, `_dot_` for a dot."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def meminfo(available_kb: int) -> str:
    return (
        f"MemTotal:       24684000 kB\nMemFree:          100000 kB\nMemAvailable:   {available_kb} kB\nBuffers: 1 kB\n"
    )


def stalls(some: float, full: float) -> str:
    rest = "avg60=1.00 avg300=0.50 total=123"
    return f"some avg10={some:.2f} {rest}\nfull avg10={full:.2f} {rest}\n"


def test_the_machine(tmp_path: Path) -> None:
    root = tree(tmp_path, proc__meminfo=meminfo(2048), proc__pressure__memory=stalls(12.5, 3.25))
    assert read_pressure(root) == Pressure(2 * MIB, 12.5, 3.25)


def test_a_container_counts_where_it_is_worse_and_gives_back_its_page_cache(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        proc__meminfo=meminfo(1024 * 1024),
        proc__pressure__memory=stalls(1, 0),
        sys__fs__cgroup__memory_dot_max=str(300 * MIB),
        sys__fs__cgroup__memory_dot_current=str(280 * MIB),
        sys__fs__cgroup__memory_dot_stat=f"anon 1\ninactive_file {30 * MIB}\n",
        sys__fs__cgroup__memory_dot_pressure=stalls(40, 20),
    )
    assert read_pressure(root) == Pressure(50 * MIB, 40.0, 20.0)
    (root / "sys/fs/cgroup/memory.max").write_text("max")
    assert read_pressure(root) == Pressure(1024 * MIB, 40.0, 20.0)


@pytest.mark.parametrize("text", ["", "MemAvailable: many kB\n", "garbage\x00\xff", "MemFree: 5 kB\n"])
def test_what_cannot_be_read_is_not_known(tmp_path: Path, text: str) -> None:
    root = tree(tmp_path, proc__meminfo=text, proc__pressure__memory=text)
    assert read_pressure(root) == Pressure(None, None, None)


def test_a_container_of_the_first_cgroup_version_counts_too(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        proc__meminfo=meminfo(1024 * 1024),
        sys__fs__cgroup__memory__memory_dot_limit_in_bytes=str(300 * MIB),
        sys__fs__cgroup__memory__memory_dot_usage_in_bytes=str(280 * MIB),
        sys__fs__cgroup__memory__memory_dot_stat=f"inactive_file 1\ntotal_inactive_file {10 * MIB}\n",
    )
    assert read_pressure(root).available_bytes == 30 * MIB
    (root / "sys/fs/cgroup/memory/memory.limit_in_bytes").write_text("9223372036854771712")  # none
    assert read_pressure(root).available_bytes == 1024 * MIB


def test_an_absent_tree_is_not_known(tmp_path: Path) -> None:
    assert read_pressure(tmp_path / "absent") == Pressure(None, None, None)


def test_this_machine_says_what_is_available() -> None:
    available = read_pressure(Path("/")).available_bytes
    assert available is not None
    assert available > MIB
