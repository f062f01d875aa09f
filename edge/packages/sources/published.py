"""Reads a package that its publisher described: a folder with manifest, signature and exactly the stated files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge.packages import signature
from edge.packages.contents import opened_file
from edge.packages.installation import Published
from edge.packages.manifest import MANIFEST_FILE, PackageFile
from edge.packages.staging import Readable
from edge.packages.verification import read_folder


def is_package_folder(path: Path) -> bool:
    """Whether `path` is a folder that a publisher wrote, not one with bare model files."""
    return (path / MANIFEST_FILE).is_file()


def published_in(folder: Path) -> tuple[str, Published]:
    """Name and content of the package in `folder`, for `Installation.install_published`.

    Raises:
        TrustError: files are missing, extra or links, or manifest or signature cannot be read.
    """
    manifest, raw = read_folder(folder)

    @contextmanager
    def opened(file: PackageFile) -> Iterator[Readable]:
        with opened_file(folder, file.path) as fd, os.fdopen(os.dup(fd), "rb") as content:
            yield content

    return manifest.name, Published(raw, signature.read(folder), opened)
