"""Installations as they happen: several processes at once on one name, and disks that are really full."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.packages.library import Library
from edge.packages.progress import Progress, Step
from edge.packages.store import PackageStore
from shared.errors import SettingsError
from shared.testing.models import write_gguf

_MIB = 1 << 20


def command(home: Path, *arguments: str) -> subprocess.Popen[str]:
    """`isthmus edge …` as a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "ISTHMUS_HOME": str(home)}
    return subprocess.Popen(
        [sys.executable, "-m", "shared.cli", "edge", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and what it said on standard error."""
    try:
        _, errors = process.communicate(timeout=100)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return process.returncode, errors


def waits_for(process: subprocess.Popen[str], lock: Path) -> bool:
    try:
        opened = [entry.readlink() for entry in Path(f"/proc/{process.pid}/fd").iterdir()]
    except OSError:
        return False
    return lock in opened


@pytest.mark.parametrize("same", [True, False])
def test_two_processes_install_one_name_at_once(tmp_path: Path, same: bool) -> None:
    """Both stand before the lock when it is let go; each ends well and what is left is whole, whoever came last."""
    paths = [
        write_gguf(tmp_path / f"{number}.gguf", numbers={"general.number": number}) for number in (1, 1 + (not same))
    ]
    home = tmp_path / "home"
    store, library = PackageStore(home / "models"), Library(home / "models")
    with store.installation("small"):
        lock = home / "models" / "small" / ".lock"
        processes = [command(home, "import", str(path), "--name", "small", "--json") for path in paths]
        deadline_s = time.monotonic() + 100
        while not all(waits_for(process, lock) for process in processes):
            assert all(process.poll() is None for process in processes), "one did not wait"
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        assert library.installed() == ()
    results = [ended(process) for process in processes]
    assert [code for code, _ in results] == [0, 0], results
    versions = sorted((home / "models" / "small" / "versions").iterdir())
    current = library.verify("small").package
    assert current.folder == versions[-1]
    previous = library.previous("small")
    assert (previous is None) == same
    assert [path.name for path in (home / "models").rglob("staging-*")] == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MiB; skips where this process may not mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this machine lets nobody here mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


class Filler:
    """Takes all the room that is left as soon as the first bytes of a copy are written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, progress: Progress) -> None:
        if progress.step is Step.COPY and not self._path.exists():
            with self._path.open("wb", buffering=0) as file:
                block = bytes(64 << 10)
                try:
                    while file.write(block):
                        pass
                except OSError:
                    return


def test_a_disk_that_fills_up_on_the_way_changes_nothing(small_disk: Path, tmp_path: Path) -> None:
    """Real ENOSPC in the middle of a copy; the version before stays whole, and with room again it goes on."""
    paths = [
        write_gguf(tmp_path / f"{n}.gguf", embedding=4096, heads=32, numbers={"general.number": n}) for n in (1, 2)
    ]
    assert paths[0].stat().st_size > 2 * _MIB
    library = Library(small_disk / "models")
    first = library.import_path(paths[0], "small")
    filler = small_disk / "filler"
    with pytest.raises(SettingsError) as refused:
        library.import_path(paths[1], "small", progress=Filler(filler))
    assert (refused.value.code, refused.value.exit_code) == ("disk_full", 2)
    assert filler.exists(), "the disk was not filled"
    assert library.verify("small").package == first
    assert [path.name for path in small_disk.rglob("staging-*")] == []
    code, errors = ended(command(small_disk, "import", str(paths[1]), "--name", "small"))
    assert code == 2
    assert "disk is full" in errors
    assert len(errors.strip().splitlines()) == 1
    filler.unlink()
    second = library.import_path(paths[1], "small")
    assert library.verify("small").package == second
    assert library.previous("small") == first


def test_a_limit_on_the_size_of_files_is_one_clear_line(tmp_path: Path) -> None:
    """`ulimit -f`: the kernel refuses the write after some bytes are there."""
    small, large = write_gguf(tmp_path / "1.gguf"), write_gguf(tmp_path / "2.gguf", embedding=4096, heads=32)
    home = tmp_path / "home"
    library = Library(home / "models")
    first = library.import_path(small, "small")
    process = command(home, "import", str(large), "--name", "small")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (_MIB, _MIB))  # before it has imported anything
    code, errors = ended(process)
    assert code == 2
    assert "ulimit -f" in errors
    assert "nothing was installed" in errors
    assert len(errors.strip().splitlines()) == 1
    assert library.verify("small").package == first
    assert [path.name for path in (home / "models").rglob("staging-*")] == []
