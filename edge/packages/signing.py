"""Signs a package with an owner's key: one that is installed, or a package folder. Nothing is signed unchecked."""

from __future__ import annotations

from pathlib import Path

from edge.packages import signature
from edge.packages.durable import disk_errors, replace_synced
from edge.packages.manifest import SIGNATURE_FILE, Manifest
from edge.packages.progress import ProgressListener
from edge.packages.signing_key import SigningKey
from edge.packages.verification import check_bytes, read_folder


def sign_folder(folder: Path, key: SigningKey, progress: ProgressListener, *, scratch: Path | None = None) -> Manifest:
    """Check every byte of the package in `folder`, then put a signature by `key` beside those it has.

    The unfinished signature stands in `scratch` (default: the folder above), never in the package.

    Raises:
        TrustError: the package is not what its manifest states; it was not signed.
        SettingsError: the signature cannot be written.
    """
    manifest, raw = read_folder(folder)
    check_bytes(folder, manifest, progress)
    signed = signature.sign(raw, key, signature.read(folder))
    with disk_errors(folder, "nothing was signed"):
        replace_synced(folder / SIGNATURE_FILE, signed, scratch=scratch or folder.absolute().parent)
    return manifest
