"""An installed package, and its model file opened such that what was verified is what is loaded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from edge.packages.manifest import MODEL_FILE, Manifest
from edge.packages.model_file import inspect
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
        """The model file."""
        return self.folder / MODEL_FILE


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
    try:
        fd = os.open(package.model_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ModelCorrupt(f"{package.name}/{MODEL_FILE} cannot be opened: {error.strerror}.", param="file") from None
    try:
        yield fd
    finally:
        os.close(fd)


def check_header(package: Package, fd: int) -> None:
    """Read the header of `fd` again and compare it with the manifest.

    Raises:
        TrustError: the header is broken, or says other than the manifest.
    """
    if inspect(fd) != package.manifest.model:
        raise ModelCorrupt("The model file's header says other than the manifest.", param="manifest")


def check_digest(package: Package, fd: int, progress: ProgressListener = ignore) -> None:
    """Hash all of `fd` and compare with the manifest.

    Raises:
        ModelCorrupt: its size differs.
        DigestMismatch: its bytes differ.
    """
    expected = package.manifest.model_file
    size = os.fstat(fd).st_size
    if size != expected.size_bytes:
        raise ModelCorrupt(f"{expected.size_bytes} bytes were expected, the file has {size}.", param="file")
    digest, done = hashlib.sha256(), 0
    while chunk := os.pread(fd, _CHUNK_BYTES, done):
        digest.update(chunk)
        done += len(chunk)
        progress(Progress(Step.VERIFY, done, size))
    if digest.hexdigest() != expected.sha256:
        raise DigestMismatch(
            f"The model file of {package.name} does not hash to its manifest's digest.", param="digest"
        )
