"""Where things stand in a channel, and the one small file that says which release of a package is the latest."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edge.packages.manifest import PackageName, canonical
from shared.errors import ChannelRejected

METADATA = "metadata"
TARGETS = "targets"
PUBLISHED_AT = "x-isthmus-published-at"
"""In the signed timestamp: a lower bound of the present for devices without a clock."""


class Release(BaseModel):
    """The content of the target `<name>/release.json`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal[1] = 1
    name: PackageName
    sequence: int = Field(ge=1)

    def encoded(self) -> bytes:
        """The bytes of the target."""
        return canonical(self.model_dump(mode="json"))


def release_path(name: str) -> str:
    """The target that names the latest release of `name`."""
    return f"{name}/release.json"


def file_path(name: str, sequence: int, path: str) -> str:
    """The target that is the file `path` of one release."""
    return f"{name}/{sequence}/{path}"


def served_path(target: str, sha256: str) -> str:
    """Where a target lies below `targets/`: its name begins with its hash, as TUF's consistent snapshots ask for."""
    folder, slash, name = target.rpartition("/")
    return f"{folder}{slash}{sha256}.{name}"


def parse_release(raw: bytes, name: str) -> Release:
    """The release in `raw`.

    Raises:
        ChannelRejected: it is none, or that of another package.
    """
    try:
        release = Release.model_validate_json(raw)
    except ValidationError:
        release = None
    if release is None or release.name != name:
        raise ChannelRejected(f"The channel's release.json of {name} cannot be read.", param="channel")
    return release


def published_at(fields: dict[str, object]) -> datetime | None:
    """The time that a signed timestamp states of itself, where it does."""
    stated = fields.get(PUBLISHED_AT)
    try:
        at = datetime.fromisoformat(stated) if isinstance(stated, str) else None
    except ValueError:
        return None
    return at.astimezone(UTC) if at is not None and at.tzinfo is not None else None
