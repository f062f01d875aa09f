"""Copies an installed package into a folder that can be carried elsewhere and installed from there."""

from __future__ import annotations

import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from edge.packages import openssf
from edge.packages.durable import SCRATCH_PREFIX, disk_errors, require_room, sync_folder, sync_tree, write_synced
from edge.packages.installation import promised
from edge.packages.manifest import MANIFEST_FILE, SIGNATURE_FILE
from edge.packages.package import Package
from edge.packages.progress import ProgressListener
from edge.packages.sources.published import published_in
from edge.packages.staging import stage
from edge.packages.verification import check_bytes
from shared.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Exported:
    """Where the copy is, and the bundle for other tools beside it."""

    folder: Path
    bundle: Path | None


def export(package: Package, target: Path, progress: ProgressListener, openssf_key: Path | None = None) -> Exported:
    """Copy `package` to the new folder `target`, whole or not at all; with `openssf_key`, write `target.sig` too.

    Raises:
        SettingsError: `target` exists, the key cannot be used, or the disk cannot be written.
        TrustError: the package is not what its manifest states.
    """
    target = target.absolute()
    beside = target.with_name(f"{target.name}.sig")
    for path in (target, *((beside,) if openssf_key else ())):
        if path.exists():
            raise SettingsError(f"{path} exists; nothing was exported.", param="target")
    manifest = package.manifest
    _, published = published_in(package.folder)
    with disk_errors(target.parent, "nothing was exported"):
        target.parent.mkdir(parents=True, exist_ok=True)
        require_room(target.parent, manifest.size_bytes)
        # A bundle states the name of the folder, so the copy has it from the start.
        scratch = target.parent / f"{SCRATCH_PREFIX}{secrets.token_hex(6)}"
        copy = scratch / target.name
        try:
            copy.mkdir(parents=True)
            files = [promised(file, published) for file in manifest.files]
            stage(copy, files, package.name, progress)
            write_synced(copy / MANIFEST_FILE, published.manifest, 0o644)
            if published.signature is not None:
                write_synced(copy / SIGNATURE_FILE, published.signature, 0o644)
            check_bytes(copy, manifest, progress)
            signed = openssf.bundle(copy, openssf_key) if openssf_key else None
            sync_tree(copy)
            copy.rename(target)
            if signed is not None:
                write_synced(beside, signed, 0o644)
            sync_folder(target.parent)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return Exported(target, beside if openssf_key else None)
