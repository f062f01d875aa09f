"""Installs adapters such that at every instant each name has its old version or its new one.

    <root>/<base>/<name>/<fingerprint>/    manifest.json, the two files, manifest.sig; written once
    <root>/<base>/<name>/current           link to the version in use

A version is a folder of its own and is never written again, so an engine that has loaded it reads what it checked. It
stays for a while after it went out of service: an engine with more adapters than places reads one again when the next
token of a running request needs it, and an engine that cannot ends with all its requests.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from cloud.adapters.manifest import (
    FILES,
    MANIFEST_FILE,
    SIGNATURE_FILE,
    AdapterManifest,
    check_files,
    checked_name,
    described,
    read_manifest,
)
from cloud.adapters.peft import WEIGHTS_FILE, inspect, rank_too_high
from cloud.adapters.trust import Signer, Trust
from cloud.render import REQUEST_TIMEOUT_S
from cloud.sizing.geometry import Geometry
from shared.errors import AdapterRejected, IsthmusError, NotFound, SettingsError

_CURRENT, _STAGING = "current", ".new-"


@dataclass(frozen=True, slots=True)
class BaseModel:
    """The model that adapters are for."""

    model_id: str
    geometry: Geometry
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Adapter:
    """One installed version."""

    folder: Path
    manifest: AdapterManifest
    raw: bytes
    """The manifest's bytes, as they are signed."""


class AdapterStore:
    """The folder of adapters of one base model. Every method blocks."""

    def __init__(self, root: Path, model_id: str, trust: Trust, *, rank_limit: int | None = None) -> None:
        self._folder = root / model_id.replace("/", "--")
        self._trust = trust
        self._rank_limit = rank_limit

    def register(
        self,
        source: Path,
        name: str,
        base: BaseModel,
        *,
        rank_limit: int,
        digest: str | None = None,
        signer: Signer | None = None,
    ) -> Adapter:
        """Check the PEFT folder `source`, copy it, and make it the current version of `name`.

        `digest` is the identity it shares with the edge tier; None takes that of its weights file.

        Raises:
            AdapterRejected: it is not for this base, or over the limit; nothing changed.
            TrustError: nobody who is trusted vouches for it; nothing changed.
            SettingsError: the store cannot be written.
        """
        checked_name(name)
        try:
            (self._folder / name).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=_STAGING, dir=self._folder / name) as scratch:
                staging = Path(scratch) / "version"
                staging.mkdir()
                for file in FILES:
                    _copy(source / file, staging / file)
                facts = inspect(staging, base.geometry, rank_limit=rank_limit)
                files = tuple(described(staging / file) for file in FILES)
                own = next(f"sha256:{file.sha256}" for file in files if file.path == WEIGHTS_FILE)
                manifest = AdapterManifest(
                    name=name,
                    base=base.model_id,
                    base_digest=base.digest,
                    digest=digest or own,
                    facts=facts,
                    files=files,
                )
                return self._install(staging, manifest, signer)
        except OSError as error:
            reason = (error.strerror or "cannot be used").lower()
            raise SettingsError(
                f"The adapter folder {self._folder} cannot be written: {reason}.", param="adapters"
            ) from None
        finally:
            self._sweep(name)

    def names(self) -> tuple[str, ...]:
        """Every registered name."""
        try:
            return tuple(sorted(each.name for each in self._folder.iterdir() if (each / _CURRENT).exists()))
        except OSError:
            return ()

    def digests(self) -> dict[str, str]:
        """Digest of each adapter that can be served, by name; one over the rank limit or not readable is left out."""
        found = {}
        for name in self.names():
            with contextlib.suppress(IsthmusError):
                found[name] = self.served(name).digest
        return found

    def served(self, name: str) -> AdapterManifest:
        """The manifest of the current version of `name`, whose word on its rank is taken.

        Raises:
            NotFound: there is none.
            AdapterRejected: it was registered under a higher limit than that of this store.
            ModelCorrupt: its manifest cannot be read.
        """
        manifest = self.current(name).manifest
        if self._rank_limit is not None and manifest.facts.rank > self._rank_limit:
            raise rank_too_high(manifest.facts.rank, self._rank_limit)
        return manifest

    def has(self, name: str) -> bool:
        """Whether `name` is registered."""
        return (self._folder / checked_name(name) / _CURRENT).exists()

    def current(self, name: str) -> Adapter:
        """The current version of `name`, its manifest read and not yet checked.

        Raises:
            NotFound: there is none.
            ModelCorrupt: its manifest cannot be read.
        """
        link = self._folder / checked_name(name) / _CURRENT
        if not link.exists():
            raise unknown_adapter()
        folder = link.resolve()
        return Adapter(folder, *read_manifest(folder))

    def verify(self, adapter: Adapter, base: BaseModel, *, rank_limit: int) -> None:
        """Check what is about to be loaded: signature, base, every byte, rank.

        Raises:
            TrustError: one of them is not as it must be.
        """
        self._trust.judge(adapter.raw, _signature(adapter.folder))
        stated = adapter.manifest.base_digest
        if None not in (stated, base.digest) and stated != base.digest:
            raise AdapterRejected(
                "The adapter was registered for another version of its base model. Register it again.",
                param="base_digest",
                code="base_mismatch",
            )
        check_files(adapter.folder, adapter.manifest)
        inspect(adapter.folder, base.geometry, rank_limit=rank_limit)

    def remove(self, name: str) -> None:
        """Take `name` out of service; what runs with it goes on. Raises NotFound."""
        link = self._folder / checked_name(name) / _CURRENT
        if not link.exists():
            raise unknown_adapter()
        version = link.resolve()
        link.unlink()
        _retire(version)
        self._sweep(name)

    def _install(self, staging: Path, manifest: AdapterManifest, signer: Signer | None) -> Adapter:
        raw = manifest.encoded()
        (staging / MANIFEST_FILE).write_bytes(raw)
        signature = signer.sign(raw) if signer else None
        if signature is not None:
            (staging / SIGNATURE_FILE).write_bytes(signature)
        self._trust.judge(raw, signature)
        for file in staging.iterdir():
            _sync(file)
        place = self._folder / manifest.name
        version = place / manifest.fingerprint
        if not version.exists():
            staging.rename(version)
        before = (place / _CURRENT).resolve()
        link = staging.parent / _CURRENT
        link.symlink_to(version.name)
        link.rename(place / _CURRENT)
        if before not in (version.resolve(), place.resolve() / _CURRENT):
            _retire(before)
        _sync(place)
        return Adapter(version, manifest, raw)

    def _sweep(self, name: str) -> None:
        """Remove versions that have been out of service for longer than any request runs; also `name`, if empty."""
        oldest_s = time.time() - REQUEST_TIMEOUT_S
        with contextlib.suppress(OSError):
            for place in list(self._folder.iterdir()):
                current = (place / _CURRENT).resolve().name
                for version in list(place.iterdir()):
                    if version.is_dir() and not version.is_symlink() and version.name != current:
                        with contextlib.suppress(OSError):
                            if version.stat().st_mtime < oldest_s:
                                shutil.rmtree(version, ignore_errors=True)
                if place.name == name and not any(place.iterdir()):
                    place.rmdir()


def unknown_adapter() -> NotFound:
    """The error for a name that is not registered: never an answer of the base model."""
    return NotFound("There is no such adapter here.", param="model", code="adapter_not_found")


def _retire(version: Path) -> None:
    """The version goes out of service now: its time of change tells since when."""
    with contextlib.suppress(OSError):
        os.utime(version)


def _signature(folder: Path) -> bytes | None:
    try:
        return (folder / SIGNATURE_FILE).read_bytes()
    except OSError:
        return None


def _copy(source: Path, target: Path) -> None:
    if source.is_symlink() or not source.is_file():
        raise AdapterRejected(f"{source.name} is missing, or no plain file.", param=source.name)
    shutil.copyfile(source, target)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
