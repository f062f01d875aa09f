"""Describes a device for planning: this one as it is found, or another from a YAML file."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ByteSize, ConfigDict, Field, TypeAdapter, ValidationError

from edge.devices.probe import DeviceFacts
from shared.errors import SettingsError

_STORAGE_BYTES_PER_S = 500_000_000
_REQUEST_S = 0.0001
_MEMORY_BYTES_PER_S = 10_000_000_000
Bytes = Annotated[ByteSize, Field(ge=1, le=1 << 50)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class MemoryProfile(_Part):
    """Memory of a device. Sizes may be written as `8GiB`."""

    available: Bytes = Field(description="What a model may take, the reserve included.")
    page: Bytes = Field(default=ByteSize(4096), description="Size of a page: 4096, or 16384 on some arm64 kernels.")
    bytes_per_s: float = Field(default=_MEMORY_BYTES_PER_S, gt=0, description="Bandwidth of reading weights.")


class StorageProfile(_Part):
    """Where model files lie."""

    bytes_per_s: float = Field(default=_STORAGE_BYTES_PER_S, gt=0, description="Bandwidth of one long read.")
    request_s: float = Field(default=_REQUEST_S, ge=0, le=1, description="Time of one small read.")
    readahead: Bytes = Field(default=ByteSize(128 << 10), description="What one page fault reads ahead.")


class DeviceProfile(_Part):
    """A device as plans see it."""

    name: str = Field(min_length=1, max_length=128, description="What people call it.")
    memory: MemoryProfile = Field(description="Its memory.")
    storage: StorageProfile = Field(default=StorageProfile(), description="Its storage.")


def profile_of(device: DeviceFacts) -> DeviceProfile:
    """This device. Bandwidths are common figures, not measured ones."""
    memory = MemoryProfile(
        available=ByteSize(max(1, device.memory_available_bytes)), page=ByteSize(resource.getpagesize())
    )
    return DeviceProfile(name=device.cpu_model[:128], memory=memory)


def read_profile(path: Path) -> DeviceProfile:
    """The profile in the YAML file at `path`.

    Raises:
        SettingsError: it cannot be read, or a field is missing, unknown or out of range.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        raise SettingsError(f"The profile {path} cannot be read as YAML.", param="profile") from None
    try:
        return DeviceProfile.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "profile"
        raise SettingsError(f"The profile {path} does not hold: {field}: {first['msg']}.", param=field) from None


def with_memory(device: DeviceProfile, size: str) -> DeviceProfile:
    """`device` with `size` (such as `8GiB`) of memory to plan with; raises as `size_in_bytes`."""
    available = ByteSize(size_in_bytes(size, param="memory"))
    return device.model_copy(update={"memory": device.memory.model_copy(update={"available": available})})


def size_in_bytes(text: str, *, param: str) -> int:
    """`8GiB`, `512MB` or plain bytes as a number.

    Raises:
        SettingsError: it is no size, or not between 1 byte and 1 PiB.
    """
    try:
        return int(TypeAdapter(Bytes).validate_python(text))
    except ValidationError:
        raise SettingsError(f"{param} must be a size such as 8GiB, 512MiB or a number of bytes.", param=param) from None
