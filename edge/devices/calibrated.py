"""Keeps what the engine reached of this device's processor, by the kind of weights and the number of threads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edge.devices.benchmark import write_whole
from edge.devices.unit import UnitProfile


class Calibrated(BaseModel):
    """The processor as one engine uses it for weights of `weight_types`, by threads. Peaks and shares go together."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    identity: str
    engine: str
    weight_types: tuple[str, ...]
    kv_type: str
    by_threads: dict[int, UnitProfile] = Field(min_length=1)


def kept(folder: Path, identity: str, engine: str, weight_types: Iterable[str], kv_type: str) -> Calibrated | None:
    """What was measured before on this machine with this engine, for these types; None where there is nothing."""
    types = tuple(sorted(weight_types))
    try:
        found = Calibrated.model_validate_json((folder / _name(identity, types, kv_type)).read_bytes())
    except (OSError, ValidationError):
        return None
    asked = (identity, engine, types, kv_type)
    return found if (found.identity, found.engine, found.weight_types, found.kv_type) == asked else None


def keep(folder: Path, calibrated: Calibrated) -> None:
    """Write it down for `kept`. Raises OSError where the folder cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    name = _name(calibrated.identity, calibrated.weight_types, calibrated.kv_type)
    write_whole(folder / name, calibrated.model_dump_json(indent=2).encode())


def _name(identity: str, weight_types: tuple[str, ...], kv_type: str) -> str:
    types = re.sub(r"[^A-Za-z0-9_]+", "-", "-".join((*weight_types, kv_type)))[:100]
    return f"engine-{identity}-{types}.json"
