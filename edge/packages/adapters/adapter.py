"""An installed adapter: its name, its manifest, and its file checked such that what was verified is what is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edge.packages.adapters.file import AdapterFacts, Base, check_values, inspect
from edge.packages.contents import opened_file
from edge.packages.manifest import MANIFEST_FILE, Digest, PackageFile, PackageName, canonical
from edge.packages.package import check_file
from shared.errors import AdapterRejected, InvalidRequest, ModelCorrupt

ADAPTER_FILE = "adapter.gguf"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, order=True)
class AdapterName:
    """`base:adapter`, as requests name it."""

    base: str
    adapter: str

    @classmethod
    def parse(cls, text: str) -> AdapterName:
        """The name that `text` spells.

        Raises:
            InvalidRequest: it is not `base:adapter`, each of letters, digits and ._- (at most 64).
        """
        base, _, adapter = text.partition(":")
        if not _NAME.fullmatch(base) or not _NAME.fullmatch(adapter):
            raise InvalidRequest(
                "An adapter is named base:adapter, each of letters, digits and ._- (at most 64).", param="name"
            )
        return cls(base, adapter)

    def __str__(self) -> str:
        return f"{self.base}:{self.adapter}"


class AdapterManifest(BaseModel):
    """The content of an adapter's `manifest.json`: canonical JSON, so that one content has one signature."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    version: Literal[1] = 1
    kind: Literal["adapter"] = "adapter"
    name: PackageName
    base: PackageName
    base_digest: Digest
    """The base model that it was checked against; on any other it is not loaded."""
    source: str = Field(max_length=1024)
    facts: AdapterFacts
    file: PackageFile

    @property
    def digest(self) -> str:
        """Identity of the weights: the sha256 of the file."""
        return f"sha256:{self.file.sha256}"

    def encoded(self) -> bytes:
        """The bytes of `manifest.json`."""
        return canonical(self.model_dump(mode="json"))


def parse_manifest(raw: bytes) -> AdapterManifest:
    """The manifest that `raw` holds.

    Raises:
        ModelCorrupt: it is not a manifest; `param` is the field at fault.
    """
    try:
        return AdapterManifest.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ModelCorrupt(f"{MANIFEST_FILE} is not an adapter's manifest.", param=where or "manifest") from None


@dataclass(frozen=True, slots=True)
class Adapter:
    """One installed version of an adapter."""

    name: AdapterName
    folder: Path
    manifest: AdapterManifest

    @property
    def digest(self) -> str:
        """`sha256:` + 64 hex digits of its file."""
        return self.manifest.digest

    @property
    def size_bytes(self) -> int:
        """Bytes of its file."""
        return self.manifest.file.size_bytes


@contextmanager
def opened_adapter(adapter: Adapter) -> Iterator[int]:
    """Its file, open for reading; a link in its place is not followed.

    Raises:
        ModelCorrupt: it is missing or cannot be opened.
    """
    with opened_file(adapter.folder, ADAPTER_FILE) as fd:
        yield fd


def check_adapter(adapter: Adapter, fd: int, base: Base, *, rank_limit: int) -> None:
    """Check every byte of the open file of `adapter`, and that it is for `base`.

    Raises:
        AdapterRejected: it is for another base, or over the limit.
        TrustError: it is not what was registered.
    """
    manifest = adapter.manifest
    if manifest.base_digest != base.digest:
        raise AdapterRejected(
            f"{adapter.name} was registered for {manifest.base_digest}; {base.digest} is served. Register it again.",
            param="base_digest",
            code="base_mismatch",
        )
    check_file(manifest.file, fd)
    inspect(fd, base, rank_limit=rank_limit)
    check_values(fd)
