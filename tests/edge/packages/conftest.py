"""Small packages to install, and the files to make them of."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.packages.installation import Origin
from edge.packages.package import Package
from edge.packages.progress import ProgressListener, ignore
from edge.packages.store import PackageStore
from shared.testing.models import write_gguf

Install = Callable[..., Package]


@pytest.fixture
def small_model(tmp_path: Path) -> Callable[[int], Path]:
    """A function that writes a small model; another number gives other bytes."""

    def write(number: int) -> Path:
        return write_gguf(tmp_path / f"small-{number}.gguf", numbers={"general.number": number})

    return write


@pytest.fixture
def store(tmp_path: Path) -> PackageStore:
    """An empty store."""
    return PackageStore(tmp_path / "store")


@pytest.fixture
def install(store: PackageStore) -> Install:
    """A function that installs a file under a name, pinned to its own or to another hash."""

    def run(
        path: Path, name: str = "small", *, sha256: str | None = None, progress: ProgressListener = ignore
    ) -> Package:
        content = path.read_bytes()
        origin = Origin(source="test", size_bytes=len(content), sha256=sha256 or hashlib.sha256(content).hexdigest())
        with path.open("rb") as file, store.installation(name, progress) as installation:
            return installation.install(file, origin)

    return run
