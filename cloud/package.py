"""Reads what the cloud tier needs of an installed edge package, through its files: tiers do not import each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shared.errors import ModelCorrupt, NotFound

MANIFEST_FILE = "manifest.json"
CURRENT = "current"
FORMAT = "gguf"


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    path: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=1)


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    format: str
    parameters: int = Field(ge=1)


class _Manifest(BaseModel):
    """The fields of `manifest.json` (version 1) that matter here."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int
    name: str
    digest: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")
    model: _Model
    files: tuple[_File, ...]


@dataclass(frozen=True, slots=True)
class Package:
    """An installed model: its file, and the identity that both tiers report for it."""

    name: str
    digest: str
    model_path: Path
    size_bytes: int
    parameters: int


def find(models: Path, name: str) -> Package:
    """The current version of package `name` in the store at `models`.

    Raises:
        NotFound: it is not installed.
        ModelCorrupt: its manifest cannot be read, or names a file that cannot be converted.
    """
    folder = models / name / CURRENT
    if not folder.exists():
        raise NotFound(f"The model {name} is not installed. Run: isthmus edge pull {name}", param="model")
    try:
        manifest = _Manifest.model_validate_json((folder / MANIFEST_FILE).read_bytes())
    except (OSError, ValidationError):
        raise ModelCorrupt(f"The manifest of the model {name} cannot be read.", param="manifest") from None
    file = next((file for file in manifest.files if manifest.digest == f"sha256:{file.sha256}"), None)
    if manifest.version != 1 or manifest.model.format != FORMAT or file is None:
        raise ModelCorrupt(f"The model {name} is not of a kind that a checkpoint can be made of.", param="manifest")
    return Package(
        manifest.name, manifest.digest, folder.resolve() / file.path, file.size_bytes, manifest.model.parameters
    )
