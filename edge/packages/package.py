"""An installed package, and its model file opened such that what was verified is what is loaded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edge.packages.agreement import check_stated
from edge.packages.contents import facts_of_files, opened_file
from edge.packages.formats.files import Files, opened_files
from edge.packages.manifest import Manifest, PackageFile
from edge.packages.progress import Progress, ProgressListener, Step, ignore
from shared.errors import DigestMismatch, ModelCorrupt

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Package:
    """One installed version of a model."""

    name: str
    folder: Path
    manifest: Manifest

    @property
    def digest(self) -> str:
        """`sha256:` + 64 hex digits of the model file."""
        return self.manifest.digest

    @property
    def model_path(self) -> Path:
        """What the engine is given: the model file, or the folder of a package that is loaded as a whole."""
        return self.folder / self.manifest.entry


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What changes when a file's bytes change or another file takes its name; the kernel alone sets ctime."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, fd: int) -> FileIdentity:
        """Identity of the open file `fd`."""
        status = os.fstat(fd)
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@contextmanager
def opened(package: Package) -> Iterator[int]:
    """The package's model file, open for reading; a link in its place is not followed.

    Raises:
        ModelCorrupt: it is missing or cannot be opened.
    """
    with opened_file(package.folder, package.manifest.entry) as fd:
        yield fd


@contextmanager
def opened_package(package: Package) -> Iterator[Files]:
    """All files of the package, open for reading; links in their places are not followed.

    Raises:
        ModelCorrupt: one is missing or cannot be opened.
    """
    with opened_files(package.folder, [file.path for file in package.manifest.files]) as files:
        yield files


def check_contents(package: Package, files: Files) -> None:
    """Read again what the open `files` say and compare it with the manifest.

    Raises:
        TrustError: they are broken, or say other than the manifest.
    """
    check_stated(package.manifest.model, facts_of_files(files, package.manifest.entry))


def check_file(expected: PackageFile, fd: int, progress: ProgressListener = ignore) -> None:
    """Hash all of `fd` and compare with what the manifest states.

    Raises:
        ModelCorrupt: its size differs.
        DigestMismatch: its bytes differ.
    """
    size = os.fstat(fd).st_size
    if size != expected.size_bytes:
        raise ModelCorrupt(
            f"{expected.size_bytes} bytes were expected, {expected.path} has {size}.", param=expected.path
        )
    digest, done = hashlib.sha256(), 0
    while chunk := os.pread(fd, _CHUNK_BYTES, done):
        digest.update(chunk)
        done += len(chunk)
        progress(Progress(Step.VERIFY, done, size))
    if digest.hexdigest() != expected.sha256:
        raise DigestMismatch(f"{expected.path} does not hash to what the manifest states.", param=expected.path)
