"""Takes a package from a file or a folder of this machine: whatever format it has, its files and what loads them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from edge.packages.formats.files import opened_candidate
from edge.packages.formats.registry import format_of, require_served
from edge.packages.gguf_split import joined, joined_bytes, part_name, parts_at
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

    A part of a split GGUF model stands for all parts beside it, which are joined as they are copied.

    Raises:
        NotFound: there is nothing.
        TrustError: it is broken, or nothing here runs it.
    """
    if not path.exists():
        raise NotFound(f"{path} does not exist.", param="path")
    if parts := parts_at(path):
        return LocalPackage((Incoming(MODEL_FILE, joined_bytes(parts), lambda: joined(parts), sha256),), MODEL_FILE)
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


def name_of(path: Path) -> str:
    """The name of a package that is a file or folder: without the ending of a file, or of a part."""
    if path.suffix != ".gguf":
        return path.resolve().name
    named = part_name(path.name)
    return path.stem if named is None else named.stem


def _opener(path: Path) -> Callable[[], AbstractContextManager[BinaryIO]]:
    return lambda: path.open("rb")
