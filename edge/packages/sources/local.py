"""Takes a package from a file or a folder of this machine: whatever format it has, its files and what loads them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from edge.packages.formats.files import opened_candidate
from edge.packages.formats.registry import format_of, require_served
from edge.packages.manifest import MODEL_FILE
from edge.packages.staging import Incoming
from shared.errors import NotFound


@dataclass(frozen=True, slots=True)
class LocalPackage:
    """Files to install, and what the engine is given."""

    files: tuple[Incoming, ...]
    entry: str

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)


def local_package(path: Path, sha256: str | None = None) -> LocalPackage:
    """The package at `path`, checked whole before a byte of it is copied. `sha256` pins a single file.

    Raises:
        NotFound: there is nothing.
        TrustError: it is broken, or nothing here runs it.
    """
    if not path.exists():
        raise NotFound(f"{path} does not exist.", param="path")
    with opened_candidate(path) as files:
        found = format_of(files)
        found.inspect(files)
        require_served(found)
        if found.entry == MODEL_FILE:
            only = path if path.is_file() else path / files.names[0]
            return LocalPackage(
                (Incoming(MODEL_FILE, files.size_bytes(files.names[0]), _opener(only), sha256),), MODEL_FILE
            )
        incoming = [Incoming(name, files.size_bytes(name), _opener(path / name)) for name in files.names]
        return LocalPackage(tuple(incoming), found.entry)


def _opener(path: Path) -> Callable[[], AbstractContextManager[BinaryIO]]:
    return lambda: path.open("rb")
