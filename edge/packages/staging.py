"""Brings the files of one package into a staging folder: copied, hashed and on the disk, each at most as promised."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edge.packages.durable import write_all
from edge.packages.progress import Progress, ProgressListener, Step
from shared.errors import DigestMismatch, ModelCorrupt

_CHUNK_BYTES = 1 << 20


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; none at the end."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """One file on its way in. `path` is its place in the package; `sha256` None means that nothing was promised."""

    path: str
    size_bytes: int
    open: Callable[[], AbstractContextManager[Readable]]
    sha256: str | None = None


def stage(folder: Path, incoming: Iterable[Incoming], source: str, progress: ProgressListener) -> dict[str, str]:
    """Copy `incoming` below `folder`; on return every byte is on the disk. The sha256 of each path.

    Raises:
        ModelCorrupt: a source gave more or fewer bytes than it said; `param` is the file.
        DigestMismatch: bytes do not hash to what was promised.
    """
    hashes = {}
    for each in incoming:
        target = folder / each.path
        target.parent.mkdir(parents=True, exist_ok=True)
        with each.open() as content:
            sha256 = _copy(content, target, each.path, each.size_bytes, progress)
        if each.sha256 is not None and sha256 != each.sha256:
            raise DigestMismatch(f"{each.path} from {source} does not hash to what was pinned.", param=each.path)
        hashes[each.path] = sha256
    return hashes


def _copy(content: Readable, target: Path, path: str, size_bytes: int, progress: ProgressListener) -> str:
    """Copy exactly `size_bytes` into the new file `target` and return their sha256."""
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444)
    try:
        digest, done = hashlib.sha256(), 0
        while chunk := content.read(_CHUNK_BYTES):
            done += len(chunk)
            if done > size_bytes:
                break
            digest.update(chunk)
            write_all(fd, chunk)
            progress(Progress(Step.COPY, done, size_bytes))
        if done != size_bytes:
            found = "more" if done > size_bytes else str(done)
            raise ModelCorrupt(f"{path}: {size_bytes} bytes were expected, the source gave {found}.", param="file")
        os.fsync(fd)
    finally:
        os.close(fd)
    return digest.hexdigest()
