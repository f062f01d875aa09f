"""Installs packages such that at every instant, whatever is killed, each name has its old version or its new one.

    <root>/<name>/versions/<number>-<digest>/{manifest.json,model.gguf}     written once, never modified
    <root>/<name>/current                                                   link to the version in use
    <root>/<name>/previous                                                  link to the last one before it
    <root>/<name>/staging-…                                                 an installation that has not finished

Order: copy into staging while hashing, check the header of the copy, sync files and folders, rename to its place, move
the links. One installation per name at a time, by a lock that the kernel releases when its holder dies.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edge.packages.manifest import MANIFEST_FILE, MODEL_FILE, Manifest, PackageFile, read_manifest
from edge.packages.model_file import inspect
from edge.packages.package import Package
from edge.packages.progress import Progress, ProgressListener, Step, ignore
from shared.errors import DigestMismatch, InvalidRequest, ModelCorrupt, NotFound, SettingsError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST_DIGITS = 16
_VERSION = re.compile(r"(\d{6,})-[0-9a-f]{16}")
_STAGING_PREFIX = "staging-"
_CHUNK_BYTES = 1 << 20
_SPARE_BYTES = 16 << 20
_LOCK_LIMIT_S = 1800.0
_LOCK_POLL_S = 0.05
_DISK_ERRORS = {
    errno.ENOSPC: "The disk is full",
    errno.EDQUOT: "The disk quota is used up",
    errno.EROFS: "The disk is read-only",
    errno.EACCES: "Writing is not permitted",
    errno.EPERM: "Writing is not permitted",
    errno.EIO: "The disk reports an input/output error",
}


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; none at the end."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an installation's bytes come from, and what they were pinned to (None: nothing was promised)."""

    source: str
    size_bytes: int
    sha256: str | None = None
    license: str | None = None
    sequence: int = 1


class PackageStore:
    """The folder of installed packages."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self) -> tuple[str, ...]:
        """Names that have a current version, sorted."""
        try:
            entries = sorted(entry.name for entry in self._root.iterdir())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise SettingsError(f"{self._root} cannot be read: {error.strerror}.", param="store") from None
        return tuple(name for name in entries if _NAME.fullmatch(name) and (self._root / name / "current").is_symlink())

    def current(self, name: str) -> Package:
        """The version of `name` in use.

        Raises:
            NotFound: it is not installed.
            ModelCorrupt: its manifest cannot be read.
        """
        home = self._home(name)
        try:
            version = str((home / "current").readlink())
        except OSError:
            raise NotFound(f"Model {name} is not installed.", param="name") from None
        folder = home / version
        return Package(name=name, folder=folder, manifest=read_manifest(folder))

    @contextmanager
    def installation(self, name: str, progress: ProgressListener = ignore) -> Iterator[Installation]:
        """Hold the right to install `name` for the block, waiting for another holder to end.

        Raises:
            SettingsError: the disk is full or cannot be written, or the right could not be had in time.
        """
        home = self._home(name)
        with _disk_errors(self._root):
            home.mkdir(parents=True, exist_ok=True)
            _sync_folder(self._root)
            with _locked(home, progress):
                _remove_leftovers(home)
                yield Installation(name, home, progress)

    def _home(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise InvalidRequest("A model's name is made of letters, digits and ._- (at most 64).", param="name")
        return self._root / name


class Installation:
    """The right to install one name, while its lock is held."""

    def __init__(self, name: str, home: Path, progress: ProgressListener) -> None:
        self._name = name
        self._home = home
        self._progress = progress

    @contextmanager
    def workspace(self, size_bytes: int) -> Iterator[Path]:
        """An empty folder with room for `size_bytes`, gone after the block; if killed, after the next installation.

        Raises:
            SettingsError: the disk has less room.
        """
        _require_room(self._home, size_bytes)
        folder = self._home / f"{_STAGING_PREFIX}{secrets.token_hex(6)}"
        folder.mkdir(mode=0o755)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def install(self, content: Readable, origin: Origin) -> Package:
        """Make the bytes of `content` the current version; the one before stays as `previous`.

        Raises:
            TrustError: the bytes are not what they claim to be, or not what was pinned; nothing changed.
            SettingsError: the disk is full; nothing changed.
        """
        with self.workspace(origin.size_bytes) as staging:
            manifest = _staged(self._name, staging, content, origin, self._progress)
            self._progress(Progress(Step.ACTIVATE))
            return _activated(self._home, staging, manifest)


def _staged(name: str, staging: Path, content: Readable, origin: Origin, progress: ProgressListener) -> Manifest:
    """Copy, hash, check and describe; on return all bytes are on the disk."""
    fd = os.open(staging / MODEL_FILE, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
    try:
        sha256 = _copied(content, fd, origin.size_bytes, progress)
        if origin.sha256 is not None and sha256 != origin.sha256:
            raise DigestMismatch(f"The bytes from {origin.source} do not hash to what was pinned.", param="digest")
        progress(Progress(Step.CHECK))
        manifest = Manifest(
            name=name,
            digest=f"sha256:{sha256}",
            sequence=origin.sequence,
            source=origin.source,
            license=origin.license,
            model=inspect(fd),
            files=(PackageFile(path=MODEL_FILE, sha256=sha256, size_bytes=origin.size_bytes),),
        )
        progress(Progress(Step.SYNC))
        os.fsync(fd)
    finally:
        os.close(fd)
    _write_synced(staging / MANIFEST_FILE, manifest.encoded())
    _sync_folder(staging)
    return manifest


def _copied(content: Readable, fd: int, size_bytes: int, progress: ProgressListener) -> str:
    """Copy exactly `size_bytes` and return their sha256."""
    digest, done = hashlib.sha256(), 0
    while chunk := content.read(_CHUNK_BYTES):
        done += len(chunk)
        if done > size_bytes:
            break
        digest.update(chunk)
        _write_all(fd, chunk)
        progress(Progress(Step.COPY, done, size_bytes))
    if done != size_bytes:
        raise ModelCorrupt(f"{size_bytes} bytes were expected, the source gave {done}.", param="file")
    return digest.hexdigest()


def _activated(home: Path, staging: Path, manifest: Manifest) -> Package:
    """Move the staged version to its place and point to it: the one step after which it is the installed one."""
    versions = home / "versions"
    versions.mkdir(exist_ok=True)
    _sync_folder(home)
    version = f"versions/{_next_number(versions):06d}-{manifest.model_file.sha256[:_DIGEST_DIGITS]}"
    staging.rename(home / version)
    _sync_folder(versions)
    old = _link_target(home / "current")
    # The same bytes again are a repair: what came before them stays the version to go back to.
    if old is not None and old[-_DIGEST_DIGITS:] != version[-_DIGEST_DIGITS:]:
        _point(home / "previous", old)
    _point(home / "current", version)
    _remove_unreferenced(home)
    return Package(name=manifest.name, folder=home / version, manifest=manifest)


def _next_number(versions: Path) -> int:
    numbers = [int(match[1]) for entry in versions.iterdir() if (match := _VERSION.fullmatch(entry.name))]
    return max(numbers, default=0) + 1


def _link_target(link: Path) -> str | None:
    try:
        return str(link.readlink())
    except OSError:
        return None


def _point(link: Path, target: str) -> None:
    """Make `link` point to `target` in one step, and keep that over a loss of power."""
    fresh = link.with_name(f"{_STAGING_PREFIX}{link.name}-{secrets.token_hex(6)}")
    fresh.symlink_to(target)
    fresh.replace(link)
    _sync_folder(link.parent)


def _remove_unreferenced(home: Path) -> None:
    """Drop versions that neither link names. An engine that still maps one keeps its bytes until it ends."""
    kept = {_link_target(home / "current"), _link_target(home / "previous")}
    for version in (home / "versions").iterdir():
        if f"versions/{version.name}" not in kept:
            shutil.rmtree(version, ignore_errors=True)


def _remove_leftovers(home: Path) -> None:
    """Drop what a killed installation left; the lock is held, so none is running."""
    for entry in home.iterdir():
        if entry.name.startswith(_STAGING_PREFIX):
            if entry.is_symlink():
                entry.unlink(missing_ok=True)
            else:
                shutil.rmtree(entry, ignore_errors=True)


def _require_room(home: Path, size_bytes: int) -> None:
    free = shutil.disk_usage(home).free
    needed = size_bytes + _SPARE_BYTES
    if free < needed:
        raise SettingsError(
            f"The disk is full: {needed} bytes are needed at {home}, {free} are free.", param="disk", code="disk_full"
        )


@contextmanager
def _locked(home: Path, progress: ProgressListener) -> Iterator[None]:
    """Hold the lock of one name, waiting for another installation of it to end."""
    fd = os.open(home / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline_s = time.monotonic() + _LOCK_LIMIT_S
        while not _try_lock(fd):
            if time.monotonic() > deadline_s:
                raise SettingsError(f"Another installation holds {home / '.lock'}.", param="store", code="store_locked")
            progress(Progress(Step.WAIT))
            time.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _disk_errors(root: Path) -> Iterator[None]:
    """Say in one line what is wrong with the disk."""
    try:
        yield
    except OSError as error:
        what = _DISK_ERRORS.get(error.errno or 0, error.strerror or type(error).__name__)
        code = "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "disk"
        raise SettingsError(f"{what} at {root}; nothing was installed.", param="disk", code=code) from None


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _write_synced(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
    try:
        _write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
