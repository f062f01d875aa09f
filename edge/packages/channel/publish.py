"""Publishes packages into a release channel: a folder that any static web server serves.

The files of a release are on the disk before the metadata that names them, so that a reader, or a publisher that was
killed, finds the offer before or the whole new one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tuf.api.metadata import TargetFile, Targets

from edge.packages import signature
from edge.packages.channel import layout
from edge.packages.channel.offer import Lifetimes, Offer, PublisherKeys
from edge.packages.durable import SCRATCH_PREFIX, disk_errors, drop_scratch, replace_synced, sync_tree
from edge.packages.installation import Published
from edge.packages.manifest import MANIFEST_FILE, SIGNATURE_FILE, Manifest, PackageFile, parse_manifest
from edge.packages.progress import ProgressListener, ignore
from edge.packages.signing_key import SigningKey
from edge.packages.sources.published import published_in
from edge.packages.staging import Incoming, stage
from edge.packages.verification import check_bytes
from shared.errors import Downgrade


@dataclass(frozen=True, slots=True)
class ChannelState:
    """What a channel offers: the latest release of each name, until when, under which version of its root."""

    folder: Path
    root_version: int
    releases: Mapping[str, int]
    expires: datetime


def publish(
    folder: Path,
    packages: Sequence[Path],
    keys: PublisherKeys,
    *,
    now: datetime,
    lifetimes: Lifetimes | None = None,
    new_key: SigningKey | None = None,
    progress: ProgressListener = ignore,
) -> ChannelState:
    """Offer the package folders `packages` as the latest releases and renew all expiry; `new_key` takes over.

    Raises:
        TrustError: a package is not what its manifest states.
        Downgrade: a release is not newer than what the channel offers.
        SettingsError: the keys are not the channel's, or the disk cannot be written.
    """
    with disk_errors(folder, "nothing was published"), _alone(folder):
        offer = Offer(folder, keys, now, lifetimes or Lifetimes())
        if new_key is not None:
            offer.rotate(new_key)
        for package in packages:
            _add(offer, folder, package, new_key or keys.offline, progress)
        expires = offer.write()
        names = sorted({path.partition("/")[0] for path in offer.targets.targets})
        releases = {name: max(_sequences(offer.targets, name)) for name in names}
        return ChannelState(folder, offer.root_version, releases, expires)


def _add(offer: Offer, folder: Path, package: Path, key: SigningKey | None, progress: ProgressListener) -> None:
    """Copy one release to where its hashes say, signed by the channel's key too, and offer it."""
    targets = offer.change_targets()
    _, published = published_in(package)
    manifest = parse_manifest(published.manifest)
    if _is_offered(targets, manifest, published.manifest):
        return
    check_bytes(package, manifest, progress)
    root = folder / layout.TARGETS
    incoming = [_placed(targets, manifest, file, published) for file in manifest.files]
    _copy([each for each in incoming if not (root / each.path).exists()], root, folder, progress)
    signed = signature.sign(published.manifest, key, published.signature) if key else published.signature
    small = {
        layout.file_path(manifest.name, manifest.sequence, MANIFEST_FILE): published.manifest,
        layout.file_path(manifest.name, manifest.sequence, SIGNATURE_FILE): signed,
        layout.release_path(manifest.name): layout.Release(name=manifest.name, sequence=manifest.sequence).encoded(),
    }
    for path, content in small.items():
        if content is not None:
            target = TargetFile.from_data(path, content, ["sha256"])
            targets.targets[path] = target
            served = root / layout.served_path(path, target.hashes["sha256"])
            replace_synced(served, content, scratch=folder, mode=0o644)
    sync_tree(root)


def _copy(incoming: Sequence[Incoming], root: Path, folder: Path, progress: ProgressListener) -> None:
    """Bring files to their places below `root`, each in one step: what stands there is whole."""
    scratch = folder / f"{SCRATCH_PREFIX}{secrets.token_hex(6)}"
    scratch.mkdir()
    try:
        stage(scratch, incoming, "the package", progress)
        for each in incoming:
            place = root / each.path
            place.parent.mkdir(parents=True, exist_ok=True)
            (scratch / each.path).replace(place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _placed(targets: Targets, manifest: Manifest, file: PackageFile, published: Published) -> Incoming:
    """Offer one file; where its bytes come from and where they will stand."""
    path = layout.file_path(manifest.name, manifest.sequence, file.path)
    targets.targets[path] = TargetFile(length=file.size_bytes, hashes={"sha256": file.sha256}, path=path)
    served = layout.served_path(path, file.sha256)
    return Incoming(served, file.size_bytes, lambda: published.open(file), file.sha256)


def _is_offered(targets: Targets, manifest: Manifest, raw: bytes) -> bool:
    """Whether this very release is offered already, as after a publisher that was killed at its end.

    Raises:
        Downgrade: it is another, and not newer than what is offered.
    """
    offered = max(_sequences(targets, manifest.name), default=0)
    known = targets.targets.get(layout.file_path(manifest.name, offered, MANIFEST_FILE))
    if known is not None and known.hashes.get("sha256") == hashlib.sha256(raw).hexdigest():
        return True
    if manifest.sequence <= offered:
        raise Downgrade(
            f"{manifest.name}: release {manifest.sequence} is not newer than release {offered}, which is offered.",
            param="sequence",
        )
    return False


def _sequences(targets: Targets, name: str) -> list[int]:
    """Numbers of the releases of `name` that `targets` holds."""
    parts = [path.split("/") for path in targets.targets]
    return [int(part[1]) for part in parts if part[0] == name and part[1].isdecimal() and part[2:] == [MANIFEST_FILE]]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the channel's lock; the kernel releases it with its holder."""
    for each in (folder / layout.METADATA, folder / layout.TARGETS):
        each.mkdir(parents=True, exist_ok=True)
    fd = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        drop_scratch(folder)
        yield
    finally:
        os.close(fd)
