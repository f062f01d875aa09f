"""Installs adapters such that at every instant each name has its old version or its new one.

    <root>/<base>/<name>/<fingerprint>/    manifest.json, the two files, manifest.sig; written once
    <root>/<base>/<name>/current           link to the version in use

A version is a folder of its own and is never written again, so an engine that has loaded it reads what it checked.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
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
from cloud.adapters.peft import WEIGHTS_FILE, AdapterRejected, inspect
from cloud.adapters.trust import Signer, Trust
from cloud.sizing.geometry import Geometry
from shared.errors import IsthmusError, NotFound, SettingsError

_CURRENT = "current"


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

    def __init__(self, root: Path, model_id: str, trust: Trust) -> None:
        self._folder = root / model_id.replace("/", "--")
        self._trust = trust

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
            with tempfile.TemporaryDirectory(prefix=".new-", dir=self._folder / name) as scratch:
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
            self._drop_if_empty(name)

    def names(self) -> tuple[str, ...]:
        """Every registered name."""
        try:
            return tuple(sorted(each.name for each in self._folder.iterdir() if (each / _CURRENT).exists()))
        except OSError:
            return ()

    def digests(self) -> dict[str, str]:
        """Digest of each registered adapter, by name; one whose manifest cannot be read is left out."""
        found = {}
        for name in self.names():
            with contextlib.suppress(IsthmusError):
                found[name] = self.current(name).manifest.digest
        return found

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
        place = self._folder / checked_name(name)
        if not (place / _CURRENT).exists():
            raise unknown_adapter()
        (place / _CURRENT).unlink()
        shutil.rmtree(place, ignore_errors=True)

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
        link = staging.parent / _CURRENT
        link.symlink_to(version.name)
        link.rename(place / _CURRENT)
        _sync(place)
        return Adapter(version, manifest, raw)

    def _drop_if_empty(self, name: str) -> None:
        place = self._folder / name
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def unknown_adapter() -> NotFound:
    """The error for a name that is not registered: never an answer of the base model."""
    return NotFound("There is no such adapter here.", param="model", code="adapter_not_found")


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
