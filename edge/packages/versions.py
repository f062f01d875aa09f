"""The versions of one name: which is in use, which came before, and the single steps by which that changes."""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
from pathlib import Path

from edge.packages.durable import PARTIAL_PREFIX, SCRATCH_PREFIX, drop_scratch, point, sync_folder, unpoint
from edge.packages.lease import unused
from edge.packages.manifest import read_manifest
from edge.packages.sizes import file_sizes
from shared.errors import NotFound, PackageInUse, TrustError

_VERSION = re.compile(r"(\d{6,})-([0-9a-f]{16})")
_DIGEST_DIGITS = 16


class Versions:
    """Reads and changes the links in `home`. Whoever changes them holds the lock of the name."""

    def __init__(self, home: Path) -> None:
        self.home = home

    @property
    def current(self) -> str | None:
        """The version in use, as a path below `home`."""
        return _target(self.home / "current")

    @property
    def previous(self) -> str | None:
        """The last version before it."""
        return _target(self.home / "previous")

    @property
    def floor_sequence(self) -> int:
        """The highest sequence number among the two: a release below it is an older one. 0 where none is known."""
        return max((self._sequence(version) for version in (self.current, self.previous)), default=0)

    @property
    def current_release(self) -> tuple[int, str] | None:
        """Sequence and digest of the version in use, where its manifest can be read."""
        if self.current is None:
            return None
        try:
            manifest = read_manifest(self.home / self.current)
        except TrustError:
            return None
        return manifest.sequence, manifest.digest

    def activate(self, staging: Path, manifest: bytes) -> Path:
        """Move the staged version to its place and point to it: the step after which it is the installed one."""
        folder = self.home / "versions"
        folder.mkdir(exist_ok=True)
        sync_folder(self.home)
        version = f"versions/{self._next_number():06d}-{fingerprint(manifest)}"
        staging.rename(self.home / version)
        sync_folder(folder)
        old = self.current
        # The same package again is a repair: what came before them stays the version to go back to.
        if old is not None and old[-_DIGEST_DIGITS:] != version[-_DIGEST_DIGITS:]:
            point(self.home / "previous", old)
        point(self.home / "current", version)
        self.collect()
        return self.home / version

    def roll_back(self) -> None:
        """Make the version before the one in use, and that one the version to go back to.

        Raises:
            NotFound: there is none before.
        """
        current, previous = self.current, self.previous
        if current is None or previous is None or current == previous:
            raise NotFound(f"There is no version of {self.home.name} before the one in use.", param="name")
        # Killed between the two, both links lead to the good version; the bad one is garbage, which is harmless.
        point(self.home / "current", previous)
        point(self.home / "previous", current)

    def remove(self) -> int:
        """Remove all versions; bytes freed. The folder of the name stays: its lock may be waited for.

        Raises:
            PackageInUse: a process uses one of them; nothing was removed.
        """
        for version in self._all():
            with unused(version) as is_free:
                if not is_free:
                    raise PackageInUse(f"{self.home.name} is in use by a running agent.", param="name")
        for link in (self.home / "current", self.home / "previous"):
            unpoint(link)
        sync_folder(self.home)
        return self.collect()

    def collect(self) -> int:
        """Remove unfinished work, downloads and versions that neither link names and nobody uses; bytes freed."""
        freed = sum(file_sizes(*self.home.glob(f"{SCRATCH_PREFIX}*")))
        drop_scratch(self.home)
        for partial in list(self.home.glob(f"{PARTIAL_PREFIX}*")):
            freed += sum(file_sizes(partial))
            partial.unlink(missing_ok=True)
        kept = {self.current, self.previous}
        for version in self._all():
            if f"versions/{version.name}" in kept:
                continue
            with unused(version) as is_free:
                if is_free:
                    freed += sum(file_sizes(version))
                    # Renamed first: a version is either whole or not there, also when killed while it is removed.
                    doomed = self.home / f"{SCRATCH_PREFIX}{secrets.token_hex(6)}"
                    version.rename(doomed)
                    shutil.rmtree(doomed, ignore_errors=True)
        return freed

    def _all(self) -> list[Path]:
        folder = self.home / "versions"
        return sorted(folder.iterdir()) if folder.is_dir() else []

    def _next_number(self) -> int:
        numbers = [int(match[1]) for entry in self._all() if (match := _VERSION.fullmatch(entry.name))]
        return max(numbers, default=0) + 1

    def _sequence(self, version: str | None) -> int:
        if version is None:
            return 0
        try:
            return read_manifest(self.home / version).sequence
        except TrustError:  # a damaged version can be repaired by any release
            return 0


def fingerprint(manifest: bytes) -> str:
    """What a version's folder is named by: its manifest cannot change without being found out, signed or not."""
    return hashlib.sha256(manifest).hexdigest()[:_DIGEST_DIGITS]


def _target(link: Path) -> str | None:
    try:
        return str(link.readlink())
    except OSError:
        return None
