"""Writing such that what was reported as done is there after a loss of power, and disk faults said in one line."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared.errors import SettingsError

SCRATCH_PREFIX = "staging-"
"""Names that begin like this are unfinished work: whoever holds the lock may drop them."""
PARTIAL_PREFIX = "partial-"
"""Names that begin like this are downloads that can go on: they are kept until one succeeds, or `gc`."""
_SPARE_BYTES = 16 << 20
_DISK_ERRORS = {
    errno.ENOSPC: "The disk is full",
    errno.EDQUOT: "The disk quota is used up",
    errno.EFBIG: "A file may not become that large (ulimit -f, or the file system)",
    errno.EROFS: "The disk is read-only",
    errno.EACCES: "Writing is not permitted",
    errno.EPERM: "Writing is not permitted",
    errno.EIO: "The disk reports an input/output error",
}


@contextmanager
def disk_errors(root: Path, outcome: str = "nothing was installed") -> Iterator[None]:
    """Say in one line what is wrong with the disk.

    Raises:
        SettingsError: instead of an OSError of the block.
    """
    try:
        yield
    except OSError as error:
        what = _DISK_ERRORS.get(error.errno or 0, error.strerror or type(error).__name__)
        code = "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "disk"
        raise SettingsError(f"{what} at {root}; {outcome}.", param="disk", code=code) from None


def require_room(folder: Path, size_bytes: int) -> None:
    """Refuse before anything is written where `size_bytes` will not fit.

    Raises:
        SettingsError: the disk has less room.
    """
    free = shutil.disk_usage(folder).free
    needed = size_bytes + _SPARE_BYTES
    if free < needed:
        raise SettingsError(
            f"The disk is full: {needed} bytes are needed at {folder}, {free} are free.", param="disk", code="disk_full"
        )


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, however few bytes a call takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def write_synced(path: Path, data: bytes, mode: int = 0o444) -> None:
    """Create `path` with `data`, on the disk when this returns. It must not exist."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_synced(path: Path, data: bytes, *, scratch: Path | None = None, mode: int = 0o444) -> None:
    """Make `data` the content of `path` in one step. The unfinished file stands in `scratch` (default: beside it)."""
    fresh = (scratch or path.parent) / f"{SCRATCH_PREFIX}{path.name}-{secrets.token_hex(6)}"
    try:
        write_synced(fresh, data, mode)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def point(link: Path, target: str) -> None:
    """Make the symbolic link `link` lead to `target` in one step, and keep that over a loss of power."""
    _clear_of_folder(link)
    fresh = link.with_name(f"{SCRATCH_PREFIX}{link.name}-{secrets.token_hex(6)}")
    fresh.symlink_to(target)
    fresh.replace(link)
    sync_folder(link.parent)


def unpoint(link: Path) -> None:
    """Remove the symbolic link `link`, if it is there."""
    _clear_of_folder(link)
    link.unlink(missing_ok=True)


def _clear_of_folder(link: Path) -> None:
    """Where a copy of the store that followed its links left a folder, make it scratch: it is no version of its own."""
    if link.is_dir() and not link.is_symlink():
        link.rename(link.with_name(f"{SCRATCH_PREFIX}{link.name}-{secrets.token_hex(6)}"))


def sync_folder(folder: Path) -> None:
    """Bring the names in `folder` to the disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(folder: Path) -> None:
    """Bring the names in `folder` and in every folder below it to the disk, the deepest first."""
    for parent, _, _ in os.walk(folder, topdown=False):
        sync_folder(Path(parent))


def drop_scratch(folder: Path) -> int:
    """Remove what killed work left in `folder`; how many entries. The caller holds the lock."""
    dropped = 0
    for entry in list(folder.iterdir()):
        if entry.name.startswith(SCRATCH_PREFIX):
            if entry.is_symlink() or not entry.is_dir():
                entry.unlink(missing_ok=True)
            else:
                shutil.rmtree(entry, ignore_errors=True)
            dropped += 1
    return dropped
