"""Installs adapters such that at every instant each name has its old version or its new one.

    <root>/<base>/<name>/versions/<number>-<hash>/    manifest.json, adapter.gguf, manifest.sig; written once
    <root>/<base>/<name>/current                      link to the version in use

A new version under an old name takes its place for whoever asks next; a version that a running agent has loaded stays
until that lets it go (see `edge.packages.lease`).
"""

from __future__ import annotations

import re
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from edge.packages import signature
from edge.packages.adapters.adapter import ADAPTER_FILE, Adapter, AdapterManifest, AdapterName, parse_manifest
from edge.packages.adapters.file import AdapterFacts, Base, base_of, check_values, inspect
from edge.packages.contents import opened_file
from edge.packages.durable import SCRATCH_PREFIX, disk_errors, require_room, sync_folder, sync_tree, write_synced
from edge.packages.manifest import MANIFEST_FILE, SIGNATURE_FILE, PackageFile, manifest_bytes
from edge.packages.package import Package, opened
from edge.packages.progress import ProgressListener, ignore
from edge.packages.signing_key import SigningKey
from edge.packages.staging import Incoming, stage
from edge.packages.store import locked
from edge.packages.trust import NO_TRUST, Trust
from edge.packages.versions import Versions, fingerprint
from shared.errors import (
    AdapterRejected,
    DigestMismatch,
    InvalidRequest,
    ModelCorrupt,
    NotFound,
    SettingsError,
    TrustError,
)

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Registration:
    """What is registered, and what it must be: `base_digest` None asks for nothing beyond the installed base."""

    name: AdapterName
    incoming: Incoming
    source: str
    rank_limit: int
    base_digest: str | None = None
    signing_key: SigningKey | None = None

    def __post_init__(self) -> None:
        """Raises InvalidRequest: `base_digest` is no digest."""
        if self.base_digest is not None and not _DIGEST.fullmatch(self.base_digest):
            raise InvalidRequest("base_digest is sha256: and 64 hexadecimal digits.", param="base_digest")


def base_in(package: Package) -> Base:
    """What adapters for the installed model `package` are held against.

    Raises:
        AdapterRejected: its engine takes no adapters.
        ModelCorrupt: its file cannot be read.
    """
    if package.manifest.model.format != "gguf":
        raise AdapterRejected(f"The engine of {package.name} takes no adapters.", param="base", code="unsupported")
    with opened(package) as fd:
        return base_of(fd, package.digest)


class AdapterStore:
    """The folder of installed adapters. Every method blocks."""

    def __init__(self, root: Path, trust: Trust = NO_TRUST) -> None:
        self._root = root
        self._trust = trust

    def register(self, wanted: Registration, package: Package, progress: ProgressListener = ignore) -> Adapter:
        """Copy and check an adapter for the installed base `package`, and make it the current version of its name.

        Raises:
            AdapterRejected: it is not for this base or over the rank limit; nothing changed.
            TrustError: it is broken, or nobody who is trusted vouches for it; nothing changed.
            SettingsError: the disk is full; nothing changed.
        """
        key = wanted.signing_key
        if wanted.base_digest not in (None, package.digest):
            raise AdapterRejected(
                f"The adapter is for {wanted.base_digest}; the installed {package.name} is {package.digest}.",
                param="base_digest",
                code="base_mismatch",
            )
        self._trust.judge_signer(str(wanted.name), key.key_id if key else None)
        base = base_in(package)
        home = self._home(wanted.name)
        with disk_errors(self._root):
            home.mkdir(parents=True, exist_ok=True)
            sync_folder(home.parent)
            with locked(home, progress):
                require_room(home, wanted.incoming.size_bytes)
                staging = home / f"{SCRATCH_PREFIX}{secrets.token_hex(6)}"
                staging.mkdir(mode=0o755)
                try:
                    return self._activated(staging, wanted, base, progress)
                finally:
                    shutil.rmtree(staging, ignore_errors=True)

    def _activated(self, staging: Path, wanted: Registration, base: Base, progress: ProgressListener) -> Adapter:
        hashes = stage(staging, [wanted.incoming], wanted.source, progress)
        with opened_file(staging, ADAPTER_FILE) as fd:
            facts: AdapterFacts = inspect(fd, base, rank_limit=wanted.rank_limit)
            check_values(fd)
        file = PackageFile(path=ADAPTER_FILE, sha256=hashes[ADAPTER_FILE], size_bytes=wanted.incoming.size_bytes)
        manifest = AdapterManifest(
            name=wanted.name.adapter,
            base=wanted.name.base,
            base_digest=base.digest,
            source=wanted.source,
            facts=facts,
            file=file,
        )
        raw = manifest.encoded()
        write_synced(staging / MANIFEST_FILE, raw)
        if wanted.signing_key is not None:
            write_synced(staging / SIGNATURE_FILE, signature.sign(raw, wanted.signing_key))
        sync_tree(staging)
        folder = Versions(self._home(wanted.name)).activate(staging, raw)
        return Adapter(wanted.name, folder, manifest)

    def current(self, name: AdapterName) -> Adapter:
        """The version of `name` in use; whoever must vouch for it does.

        Raises:
            NotFound: it is not registered.
            TrustError: its manifest cannot be read or was changed, or nobody who is trusted vouches.
        """
        home = self._home(name)
        version = Versions(home).current
        if version is None:
            raise NotFound(f"No adapter {name} is registered.", param="name", code="adapter_not_found")
        folder = home / version
        raw = manifest_bytes(folder)
        if fingerprint(raw) != folder.name.rpartition("-")[2]:
            raise DigestMismatch(f"{name}: {MANIFEST_FILE} was changed. Register it again.", param="manifest")
        self._trust.judge(str(name), raw, signature.read(folder))
        manifest = parse_manifest(raw)
        if AdapterName(manifest.base, manifest.name) != name:
            raise ModelCorrupt(f"{name}: the manifest is that of another adapter.", param="name")
        return Adapter(name, folder, manifest)

    def survey(self, base: str | None = None) -> dict[AdapterName, Adapter | TrustError]:
        """Every registered name, of one base or of all, with its adapter or why that cannot be used."""
        found: dict[AdapterName, Adapter | TrustError] = {}
        for name in self._names(base):
            try:
                found[name] = self.current(name)
            except NotFound:  # never finished, or removed meanwhile
                continue
            except TrustError as error:
                found[name] = error
        return found

    def remove(self, name: AdapterName, progress: ProgressListener = ignore) -> int:
        """Remove all versions of `name`; bytes freed.

        Raises:
            NotFound: it is not registered.
            PackageInUse: a running agent has it loaded; nothing was removed.
        """
        home = self._home(name)
        versions = Versions(home)
        if versions.current is None:
            raise NotFound(f"No adapter {name} is registered.", param="name", code="adapter_not_found")
        with disk_errors(self._root, "nothing was removed"), locked(home, progress):
            return versions.remove()

    def _home(self, name: AdapterName) -> Path:
        return self._root / name.base / name.adapter

    def _names(self, base: str | None) -> list[AdapterName]:
        try:
            bases = [base] if base is not None else [each.name for each in self._root.iterdir() if each.is_dir()]
            found = [
                AdapterName(each, entry.name)
                for each in bases
                if (self._root / each).is_dir()
                for entry in (self._root / each).iterdir()
                if (entry / "current").is_symlink()
            ]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SettingsError(f"{self._root} cannot be read: {error.strerror}.", param="adapters") from None
        return sorted(found)
