"""Installs packages such that at every instant, whatever is killed, each name has its old version or its new one.

    <root>/<name>/versions/<number>-<hash>/      manifest.json, the package's files, manifest.sig; written once
    <root>/<name>/current                        link to the version in use
    <root>/<name>/previous                       link to the last one before it
    <root>/<name>/staging-…                      work that has not finished

Order: copy into staging while hashing, check what the copy is and who vouches for it, sync files and folders, rename
to its place, move the links. One holder per name at a time, by a lock that the kernel releases when its holder dies.
A version that a process uses (see `lease`) is not removed.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge.packages.durable import disk_errors, drop_scratch, sync_folder
from edge.packages.installation import Installation
from edge.packages.manifest import MANIFEST_FILE, manifest_bytes, parse_manifest
from edge.packages.package import Package
from edge.packages.progress import Progress, ProgressListener, Step, ignore
from edge.packages.trust import NO_TRUST, Trust
from edge.packages.versions import Versions, fingerprint
from shared.errors import DigestMismatch, InvalidRequest, NotFound, SettingsError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LOCK_FILE = ".lock"
_LOCK_LIMIT_S = 1800.0
_LOCK_POLL_S = 0.05


class PackageStore:
    """The folder of installed packages."""

    def __init__(self, root: Path, trust: Trust = NO_TRUST) -> None:
        self._root = root
        self._trust = trust

    def names(self) -> tuple[str, ...]:
        """Names that have a current version, sorted."""
        return tuple(name for name in self._folders() if (self._root / name / "current").is_symlink())

    def current(self, name: str) -> Package:
        """The version of `name` in use.

        Raises:
            NotFound: it is not installed.
            TrustError: its manifest cannot be read, or was changed.
        """
        return self._package(name, self._versions(name).current)

    def previous(self, name: str) -> Package | None:
        """The version of `name` that `rollback` would return to.

        Raises:
            ModelCorrupt: its manifest cannot be read.
        """
        version = self._versions(name).previous
        return None if version is None else self._package(name, version)

    @contextmanager
    def installation(self, name: str, progress: ProgressListener = ignore) -> Iterator[Installation]:
        """Hold the right to install `name` for the block, waiting for another holder to end.

        Raises:
            SettingsError: the disk is full or cannot be written, or the right could not be had in time.
        """
        versions = self._versions(name)
        with disk_errors(self._root):
            versions.home.mkdir(parents=True, exist_ok=True)
            sync_folder(self._root)
            with locked(versions.home, progress):
                drop_scratch(versions.home)
                yield Installation(name, versions, self._trust, progress)

    @contextmanager
    def changing(self, name: str, progress: ProgressListener = ignore) -> Iterator[Versions]:
        """Hold the right to change the versions of the installed `name` for the block.

        Raises:
            NotFound: it is not installed.
            SettingsError: the disk cannot be written, or the right could not be had in time.
        """
        versions = self._versions(name)
        if versions.current is None:
            raise NotFound(f"Model {name} is not installed.", param="name")
        with disk_errors(self._root, "nothing was changed"), locked(versions.home, progress):
            drop_scratch(versions.home)
            yield versions

    def collect(self, progress: ProgressListener = ignore) -> int:
        """Remove unfinished work and versions that nothing refers to or uses; bytes freed.

        Raises:
            SettingsError: the disk cannot be written.
        """
        freed = 0
        with disk_errors(self._root, "not everything was removed"):
            for name in self._folders():
                versions = self._versions(name)
                with locked(versions.home, progress):
                    freed += versions.collect()
        return freed

    def _package(self, name: str, version: str | None) -> Package:
        if version is None:
            raise NotFound(f"Model {name} is not installed.", param="name")
        folder = self._root / name / version
        raw = manifest_bytes(folder)
        if fingerprint(raw) != folder.name.rpartition("-")[2]:
            raise DigestMismatch(
                f"{name}: {MANIFEST_FILE} was changed since it was installed. Install it again.", param="manifest"
            )
        return Package(name=name, folder=folder, manifest=parse_manifest(raw))

    def _folders(self) -> list[str]:
        try:
            entries = [entry.name for entry in self._root.iterdir() if entry.is_dir() and not entry.is_symlink()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SettingsError(f"{self._root} cannot be read: {error.strerror}.", param="store") from None
        return sorted(name for name in entries if _NAME.fullmatch(name))

    def _versions(self, name: str) -> Versions:
        if not _NAME.fullmatch(name):
            raise InvalidRequest("A model's name is made of letters, digits and ._- (at most 64).", param="name")
        return Versions(self._root / name)


@contextmanager
def locked(home: Path, progress: ProgressListener) -> Iterator[None]:
    """Hold the lock of one name, waiting for another holder to end."""
    fd = os.open(home / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline_s = time.monotonic() + _LOCK_LIMIT_S
        while not _try_lock(fd):
            if time.monotonic() > deadline_s:
                raise SettingsError(f"Another process holds {home / _LOCK_FILE}.", param="store", code="store_locked")
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
