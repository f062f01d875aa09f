"""Compares the files that a package has with those that its manifest states: none missing, none extra, no links."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from edge.packages.manifest import FILES_LIMIT, MANIFEST_FILE, SIGNATURE_FILE, Manifest
from shared.errors import FileMissing, FileUnexpected, LinkRefused, ModelCorrupt

_OWN = frozenset({MANIFEST_FILE, SIGNATURE_FILE})
_DEPTH_LIMIT = 16


def files_in(folder: Path) -> dict[str, int]:
    """Path and size of every regular file below `folder`, but manifest and signature. Nothing is followed.

    Raises:
        LinkRefused: there is a symbolic link.
        FileUnexpected: there is something that is neither file nor folder, or far too much.
        ModelCorrupt: it cannot be read.
    """
    found: dict[str, int] = {}
    try:
        _walk(folder, "", found, 0)
    except OSError as error:
        raise ModelCorrupt(f"{folder.name} cannot be read: {error.strerror}.", param="files") from None
    return found


def check_listing(manifest: Manifest, found: Mapping[str, int]) -> None:
    """Compare names and sizes.

    Raises:
        FileMissing: a file of the manifest is not there.
        FileUnexpected: a file is there that the manifest does not state.
        ModelCorrupt: a file has another size; both are stated.
    """
    stated = {file.path: file.size_bytes for file in manifest.files}
    for path in sorted(stated.keys() - found.keys()):
        raise FileMissing(f"{manifest.name}: {path} is missing.", param=path)
    for path in sorted(found.keys() - stated.keys()):
        raise FileUnexpected(f"{manifest.name}: {_shown(path)} is not in the manifest.", param="files")
    for path, size_bytes in stated.items():
        if found[path] != size_bytes:
            raise ModelCorrupt(
                f"{manifest.name}: {size_bytes} bytes were expected, {path} has {found[path]}.", param=path
            )


def _walk(folder: Path, prefix: str, found: dict[str, int], depth: int) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = f"{prefix}{entry.name}"
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISLNK(status.st_mode):
                raise LinkRefused(f"{_shown(path)} is a symbolic link; a package has files alone.", param="files")
            if stat.S_ISDIR(status.st_mode) and depth < _DEPTH_LIMIT:
                _walk(Path(entry.path), f"{path}/", found, depth + 1)
                continue
            if not stat.S_ISREG(status.st_mode):
                raise FileUnexpected(f"{_shown(path)} is not a regular file.", param="files")
            if path not in _OWN:
                found[path] = status.st_size
            if len(found) > FILES_LIMIT:
                raise FileUnexpected(f"There are more than {FILES_LIMIT} files.", param="files")


def _shown(path: str) -> str:
    """A name that somebody else chose, for a message: short and printable."""
    return ascii(path)[1:-1][:120]
