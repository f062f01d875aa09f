"""Decides whether a package is still what was vouched for: file set, signature, every byte, and what the bytes say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge.packages import signature
from edge.packages.agreement import check_stated
from edge.packages.contents import facts_of, opened_file
from edge.packages.listing import check_listing, files_in
from edge.packages.manifest import Manifest, manifest_bytes, parse_manifest
from edge.packages.package import Package, check_file
from edge.packages.progress import ProgressListener, ignore
from edge.packages.trust import Trust, TrustedKey


@dataclass(frozen=True, slots=True)
class Verified:
    """A package that is whole, and who vouches for it (None: nobody who is trusted, and the policy allows that)."""

    package: Package
    signer: TrustedKey | None


def verify(package: Package, trust: Trust, progress: ProgressListener = ignore) -> Verified:
    """Check all of `package`.

    Raises:
        TrustError: files, signature, bytes or header are not right; each fault has its own class.
    """
    verified = Verified(package, vouched(package, trust))
    check_bytes(package.folder, package.manifest, progress)
    return verified


def vouched(package: Package, trust: Trust) -> TrustedKey | None:
    """Check file set and signature alone, which takes no time: what stands before every start of the engine.

    Raises:
        TrustError: a file is missing, extra, a link or of another size; or nobody who is trusted vouches.
    """
    check_listing(package.manifest, files_in(package.folder))
    return trust.judge(package.name, manifest_bytes(package.folder), signature.read(package.folder))


def check_bytes(folder: Path, manifest: Manifest, progress: ProgressListener = ignore) -> None:
    """Hash every file, then compare what they say with what the manifest states.

    Raises:
        DigestMismatch: bytes were changed.
        TrustError: the files say other than the manifest.
    """
    for file in manifest.files:
        with opened_file(folder, file.path) as fd:
            check_file(file, fd, progress)
    check_stated(manifest.model, facts_of(folder, manifest.entry))


def read_folder(folder: Path) -> tuple[Manifest, bytes]:
    """The manifest of a package folder outside the store, whose file set is exactly as stated, and its bytes.

    Raises:
        TrustError: it is no package, or files are missing, extra or links.
    """
    raw = manifest_bytes(folder)
    manifest = parse_manifest(raw)
    check_listing(manifest, files_in(folder))
    return manifest, raw
