"""Brings one version of a package in: from plain files, or as its publisher described and signed it."""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from edge.packages import signature
from edge.packages.agreement import check_stated
from edge.packages.contents import facts_of
from edge.packages.durable import PARTIAL_PREFIX, SCRATCH_PREFIX, require_room, sync_tree, write_synced
from edge.packages.listing import check_listing, files_in
from edge.packages.manifest import (
    MANIFEST_FILE,
    MODEL_FILE,
    SIGNATURE_FILE,
    Manifest,
    PackageFile,
    check_path,
    digest_of,
    parse_manifest,
)
from edge.packages.package import Package
from edge.packages.progress import Progress, ProgressListener, Step
from edge.packages.signing_key import SigningKey
from edge.packages.staging import Incoming, Readable, stage
from edge.packages.trust import Trust
from edge.packages.verification import verify
from edge.packages.versions import Versions, fingerprint
from shared.errors import DigestMismatch, Downgrade, ModelCorrupt, TrustError


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an installation's bytes come from, and what they were pinned to (None: nothing was promised)."""

    source: str
    size_bytes: int
    sha256: str | None = None
    digest: str | None = None
    """The same for the package as a whole."""
    license: str | None = None
    sequence: int | None = None
    """None: as high as what is installed, for files that carry no number."""
    signing_key: SigningKey | None = None
    """Signs the manifest that is made here."""


@dataclass(frozen=True, slots=True)
class Published:
    """A manifest and its signature as the publisher wrote them, and how its files are had."""

    manifest: bytes
    signature: bytes | None
    open: Callable[[PackageFile], AbstractContextManager[Readable]]


class Installation:
    """The right to install one name, while its lock is held."""

    def __init__(self, name: str, versions: Versions, trust: Trust, progress: ProgressListener) -> None:
        self._name = name
        self._versions = versions
        self._trust = trust
        self._progress = progress
        self.has_installed = False
        """Whether a version was made current; not where the very one was there already."""

    @contextmanager
    def workspace(self, size_bytes: int) -> Iterator[Path]:
        """An empty folder with room for `size_bytes`, gone after the block; if killed, after the next installation.

        Raises:
            SettingsError: the disk has less room.
        """
        require_room(self._versions.home, size_bytes)
        folder = self._versions.home / f"{SCRATCH_PREFIX}{secrets.token_hex(6)}"
        folder.mkdir(mode=0o755)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def partial(self, source: str) -> Path:
        """Where a download from `source` is kept while it is not whole, also over interruptions."""
        digest = hashlib.sha256(source.encode()).hexdigest()
        return self._versions.home / f"{PARTIAL_PREFIX}{digest[:16]}.part"

    def install(self, content: Readable, origin: Origin) -> Package:
        """Make the one GGUF file `content` the current version; the one before stays as `previous`. Raises as below."""
        file = Incoming(MODEL_FILE, origin.size_bytes, lambda: nullcontext(content), origin.sha256)
        return self.install_files([file], origin)

    def install_files(self, files: Sequence[Incoming], origin: Origin, entry: str = MODEL_FILE) -> Package:
        """Make `files` the current version, loaded by `entry`, with a manifest that is made here.

        Raises:
            TrustError: they are not what they claim to be, not what was pinned, or nobody vouches; nothing changed.
            SettingsError: the disk is full; nothing changed.
        """
        key = origin.signing_key
        for file in files:
            check_path(file.path)
        self._trust.judge_signer(self._name, key.key_id if key else None)
        sequence = origin.sequence or max(1, self._versions.floor_sequence)
        self._require_sequence(sequence)
        with self.workspace(sum(file.size_bytes for file in files)) as staging:
            hashes = stage(staging, files, origin.source, self._progress)
            staged = tuple(
                PackageFile(path=file.path, sha256=hashes[file.path], size_bytes=file.size_bytes)
                for file in sorted(files, key=lambda file: file.path)
            )
            digest = digest_of(staged, entry)
            if origin.digest not in (None, digest):
                raise DigestMismatch(f"{origin.source} is not the package that was pinned.", param="digest")
            self._progress(Progress(Step.CHECK))
            manifest = Manifest(
                name=self._name,
                digest=digest,
                sequence=sequence,
                source=origin.source,
                license=origin.license,
                entry=entry,
                model=facts_of(staging, entry),
                files=staged,
            )
            raw = manifest.encoded()
            return self._activate(staging, manifest, raw, signature.sign(raw, key) if key else None)

    def install_published(self, published: Published) -> Package:
        """Make what a publisher described the current version, byte for byte, its signature included.

        What is installed, whole and vouched for already is left as it is.

        Raises:
            TrustError: signature, sequence, files or header are not right; nothing changed.
            SettingsError: the disk is full; nothing changed.
        """
        manifest = parse_manifest(published.manifest)
        if manifest.name != self._name:
            raise ModelCorrupt(f"The manifest is that of another package than {self._name}.", param="name")
        # Before any of its bytes are fetched.
        signer = self._trust.judge(self._name, published.manifest, published.signature)
        if (installed := self._installed(published.manifest)) is not None:
            return installed
        self._require_sequence(manifest.sequence, manifest.digest if signer else None)
        with self.workspace(manifest.size_bytes) as staging:
            incoming = [promised(file, published) for file in manifest.files]
            stage(staging, incoming, manifest.source, self._progress)
            self._progress(Progress(Step.CHECK))
            check_stated(manifest.model, facts_of(staging, manifest.entry))
            return self._activate(staging, manifest, published.manifest, published.signature)

    def _installed(self, manifest: bytes) -> Package | None:
        """The version in use, if it is the one with this manifest and nothing is wrong with it."""
        version = self._versions.current
        folder = self._versions.home / version if version is not None else None
        if folder is None or not folder.name.endswith(f"-{fingerprint(manifest)}"):
            return None
        package = Package(name=self._name, folder=folder, manifest=parse_manifest(manifest))
        try:
            return verify(package, self._trust, self._progress).package
        except TrustError:  # to be repaired
            return None

    def _activate(self, staging: Path, manifest: Manifest, raw: bytes, signatures: bytes | None) -> Package:
        check_listing(manifest, files_in(staging))
        write_synced(staging / MANIFEST_FILE, raw)
        if signatures is not None:
            write_synced(staging / SIGNATURE_FILE, signatures)
        self._progress(Progress(Step.SYNC))
        sync_tree(staging)
        self._progress(Progress(Step.ACTIVATE))
        folder = self._versions.activate(staging, raw)
        self.has_installed = True
        return Package(name=manifest.name, folder=folder, manifest=manifest)

    def _require_sequence(self, sequence: int, signed_digest: str | None = None) -> None:
        """A publisher's number only grows, and one that it has signed stands for one content."""
        floor = self._versions.floor_sequence
        if sequence < floor:
            raise Downgrade(
                f"{self._name}: release {sequence} is older than release {floor}, which is installed. "
                f"To go back on purpose: isthmus edge rollback {self._name}",
                param="sequence",
            )
        current = self._versions.current_release
        if signed_digest is not None and current is not None and current[0] == sequence and current[1] != signed_digest:
            raise Downgrade(
                f"{self._name}: release {sequence} is installed with other bytes; a new release needs a higher number.",
                param="sequence",
            )


def promised(file: PackageFile, published: Published) -> Incoming:
    """One file as its publisher's manifest states it."""
    return Incoming(file.path, file.size_bytes, lambda: published.open(file), file.sha256)
