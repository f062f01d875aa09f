"""What a registered adapter says of itself: canonical JSON, so that one content has one signature."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Annotated, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from cloud.adapters.peft import CONFIG_FILE, WEIGHTS_FILE, AdapterFacts
from shared.errors import DigestMismatch, InvalidRequest, ModelCorrupt

MANIFEST_FILE, SIGNATURE_FILE = "manifest.json", "manifest.sig"
FILES = (CONFIG_FILE, WEIGHTS_FILE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_CHUNK_BYTES = 1 << 22

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


class AdapterFile(BaseModel):
    """One file of the folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Literal["adapter_config.json", "adapter_model.safetensors"]
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=1)


class AdapterManifest(BaseModel):
    """The content of `manifest.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    version: Literal[1] = 1
    kind: Literal["peft-adapter"] = "peft-adapter"
    name: str = Field(pattern=_NAME.pattern.replace(r"\Z", "$"))
    base: str = Field(min_length=1, max_length=128)
    base_digest: Digest | None = None
    digest: Digest
    """Identity of the weights: on both tiers that of the edge package it was made of; else that of its weights file."""
    facts: AdapterFacts
    files: tuple[AdapterFile, ...] = Field(min_length=2, max_length=2)

    def encoded(self) -> bytes:
        """The bytes of `manifest.json`."""
        return orjson.dumps(self.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)

    @property
    def fingerprint(self) -> str:
        """A short name of this very version: other files or another base give another one."""
        return hashlib.sha256(self.encoded()).hexdigest()[:12]


def checked_name(name: str) -> str:
    """`name`, if an adapter may be called so; raises InvalidRequest."""
    if not _NAME.match(name):
        raise InvalidRequest("An adapter's name is of letters, digits and ._- (at most 64).", param="name")
    return name


def read_manifest(folder: Path) -> tuple[AdapterManifest, bytes]:
    """The manifest in `folder`, and its bytes; raises ModelCorrupt."""
    try:
        raw = (folder / MANIFEST_FILE).read_bytes()
        return AdapterManifest.model_validate_json(raw), raw
    except (OSError, ValidationError):
        raise ModelCorrupt("The manifest of this adapter cannot be read.", param="manifest") from None


def described(path: Path) -> AdapterFile:
    """The file at `path`, hashed."""
    hasher = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            hasher.update(chunk)
            size += len(chunk)
    return AdapterFile.model_validate({"path": path.name, "sha256": hasher.hexdigest(), "size_bytes": size})


def check_files(folder: Path, manifest: AdapterManifest) -> None:
    """Check every byte of the files of `manifest`.

    Raises:
        DigestMismatch: one was changed; `param` is its name.
        ModelCorrupt: one cannot be read.
    """
    for stated in manifest.files:
        try:
            found = described(folder / stated.path)
        except OSError:
            raise ModelCorrupt(f"{stated.path} cannot be read.", param=stated.path) from None
        if found != stated:
            raise DigestMismatch(f"{stated.path} is not the file that was registered.", param=stated.path)
