"""Keeps how an engine runs best on this device, by the identity of machine, engine build, model and cache."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edge.devices.benchmark import machine_identity, write_whole
from edge.devices.probe import DeviceFacts
from edge.memory.kv import KvType
from edge.scheduling.tuning import Spin, Tuning


class _Tuning(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    threads: int = Field(ge=1, le=256)
    threads_batch: int = Field(ge=1, le=256)
    spin: Spin
    batch_tokens: int = Field(ge=32, le=4096)
    stall_s: float = Field(gt=0)


class _Kept(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    identity: dict[str, str]
    tuning: _Tuning


def identity(
    device: DeviceFacts, engine: str, model_digest: str, kv_type: KvType, ubatch_tokens: int
) -> dict[str, str]:
    """What a tuning depends on: another one is measured when any of it changes."""
    return {
        "machine": machine_identity(device),
        "engine": engine,
        "model": model_digest,
        "kv_type": kv_type.value,
        "ubatch_tokens": str(ubatch_tokens),
    }


def kept(folder: Path, of: dict[str, str]) -> Tuning | None:
    """What was chosen before for exactly this; None where there is nothing that can be used."""
    try:
        found = _Kept.model_validate_json((folder / _name(of)).read_bytes())
    except (OSError, ValidationError):
        return None
    return Tuning(**found.tuning.model_dump()) if found.identity == of else None


def keep(folder: Path, of: dict[str, str], tuning: Tuning) -> None:
    """Write it down for `kept`. Raises OSError where the folder cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    entry = _Kept(identity=of, tuning=_Tuning(**asdict(tuning)))
    write_whole(folder / _name(of), entry.model_dump_json(indent=2).encode())


def _name(of: dict[str, str]) -> str:
    return f"tuning-{hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:24]}.json"
