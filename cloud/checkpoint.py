"""Prepares the checkpoint that vLLM loads: the very weights of an installed edge package, dequantised once.

A checkpoint appears whole or not at all: it is written beside its place, described by a manifest with the digest of
the package it came from, and renamed. Both tiers therefore report one digest for one set of weights.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cloud.conversion import DISK_FULL, UNSUPPORTED
from cloud.package import Package
from shared.errors import BackendError, DigestMismatch, ModelCorrupt, SettingsError, UnsupportedArchitecture
from shared.settings import environment

MANIFEST_FILE = "isthmus-checkpoint.json"
RECIPE = 2
"""How checkpoints are made. One that was made otherwise is made anew: 1 had lost the rules of the pre-tokenizer."""
_BYTES_PER_PARAMETER = 2
_SPARE_BYTES = 64 * 1024 * 1024
_DIGEST_CHARS = 12
_CHUNK_BYTES = 4 * 1024 * 1024

Progress = Callable[[str], None]
"""Called with the name of each step: waiting, hashing, loading, writing, done."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CheckpointFile(_Frozen):
    """One file of a checkpoint."""

    path: str
    size_bytes: int = Field(ge=0)


class Manifest(_Frozen):
    """What a prepared checkpoint says of itself."""

    version: int = RECIPE
    package: str
    digest: str
    files: tuple[CheckpointFile, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A prepared checkpoint. `is_new` is False when it was there already."""

    folder: Path
    digest: str
    is_new: bool


def prepare(package: Package, root: Path, progress: Progress = lambda step: None) -> Checkpoint:
    """The checkpoint of `package` below `root`, made if it is not there.

    Raises:
        SettingsError: the folder cannot be written or the disk has no room.
        DigestMismatch: the model file is not what its manifest says.
        UnsupportedArchitecture: no converter for this kind of model.
        BackendError: the converter failed for another reason.
    """
    folder = root / f"{package.name}-{package.digest.removeprefix('sha256:')[:_DIGEST_CHARS]}"
    if _is_whole(folder, package.digest):
        return Checkpoint(folder, package.digest, is_new=False)
    with _alone(root, folder.name, progress):
        if _is_whole(folder, package.digest):  # made by another process while this one waited
            return Checkpoint(folder, package.digest, is_new=False)
        staging = root / f".{folder.name}.partial"
        shutil.rmtree(staging, ignore_errors=True)
        try:
            _check_space(root, package)
            progress("hashing")
            _check_digest(package)
            _convert(package, staging, progress)
            _describe(staging, package)
            shutil.rmtree(folder, ignore_errors=True)  # an incomplete one, as a plain copy may leave behind
            staging.rename(folder)
            _sync(root)
        except OSError as error:
            raise _unwritable(root, error) from None
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    progress("done")
    return Checkpoint(folder, package.digest, is_new=True)


def digest_of(source: object) -> str | None:
    """The digest that the checkpoint folder `source` was prepared from; None when it does not say."""
    manifest = read_manifest(Path(source)) if isinstance(source, str) and source.startswith("/") else None
    return manifest.digest if manifest else None


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest in `folder`, or None when there is none that can be read."""
    try:
        return Manifest.model_validate_json((folder / MANIFEST_FILE).read_bytes())
    except (OSError, ValidationError):
        return None


def _is_whole(folder: Path, digest: str) -> bool:
    manifest = read_manifest(folder)
    if manifest is None or manifest.version != RECIPE or manifest.digest != digest:
        return False
    return all(_size(folder / file.path) == file.size_bytes for file in manifest.files)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


@contextlib.contextmanager
def _alone(root: Path, name: str, progress: Progress) -> Iterator[None]:
    """Hold the lock for one checkpoint; the system releases it with the process, however that ends."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = (root / f".{name}.lock").open("w")
    except OSError as error:
        raise _unwritable(root, error) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _check_space(root: Path, package: Package) -> None:
    needed = package.parameters * _BYTES_PER_PARAMETER + _SPARE_BYTES
    free = shutil.disk_usage(root).free
    if free < needed:
        raise SettingsError(
            f"The disk of {root} is too full: the checkpoint needs {needed >> 20} MiB, {free >> 20} MiB are free.",
            param="ISTHMUS_HOME",
        )


def _check_digest(package: Package) -> None:
    hasher = hashlib.sha256()
    try:
        with package.model_path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                hasher.update(chunk)
    except OSError:
        raise ModelCorrupt(f"The model file of {package.name} cannot be read.", param="files") from None
    if f"sha256:{hasher.hexdigest()}" != package.digest:
        raise DigestMismatch(f"The model file of {package.name} is not the one that was installed.", param="digest")


def _convert(package: Package, staging: Path, progress: Progress) -> None:
    command = [sys.executable, "-P", "-m", "cloud.conversion", str(package.model_path), str(staging)]
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    fault = None
    with subprocess.Popen(  # noqa: S603 - our own interpreter and module
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**environment(), **offline}
    ) as child:
        try:
            for line in child.stdout or ():
                said = orjson.loads(line)
                fault = said.get("fault")
                if "step" in said:
                    progress(said["step"])
        except BaseException:
            child.kill()
            raise
    if fault == DISK_FULL:
        raise SettingsError(f"The disk of {staging.parent} became full.", param="ISTHMUS_HOME")
    if fault == UNSUPPORTED:
        raise UnsupportedArchitecture(f"The model {package.name} cannot be converted to a checkpoint.")
    if child.returncode != 0:
        raise BackendError(f"The conversion of {package.name} ended with code {child.returncode}.")


def _describe(staging: Path, package: Package) -> None:
    paths = sorted(path for path in staging.iterdir() if path.is_file())
    for path in paths:
        path.chmod(0o644)
        _sync(path)
    files = tuple(CheckpointFile(path=path.name, size_bytes=path.stat().st_size) for path in paths)
    manifest = Manifest(package=package.name, digest=package.digest, files=files)
    place = staging / MANIFEST_FILE
    place.write_bytes(manifest.model_dump_json(indent=2).encode() + b"\n")
    _sync(place)
    _sync(staging)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritable(root: Path, error: OSError) -> SettingsError:
    reason = (error.strerror or "cannot be written").lower()
    return SettingsError(f"The folder {root} cannot be used: {reason}.", param="ISTHMUS_HOME")
