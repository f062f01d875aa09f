"""Describes a device for planning: this one as it is found and measured, or another from a YAML file."""

from __future__ import annotations

import resource
from pathlib import Path

import yaml
from pydantic import BaseModel, ByteSize, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from edge.devices.benchmark import Benchmark
from edge.devices.delegation import PerOperator
from edge.devices.power import PowerSource
from edge.devices.probe import DeviceFacts
from edge.devices.unit import Bytes, BytesPerSecond, UnitKind, UnitProfile
from shared.errors import SettingsError
from shared.strict_yaml import strict_yaml

_STORAGE_BYTES_PER_S = 500_000_000
_REQUEST_S = 0.0001
_MEMORY_BYTES_PER_S = 10_000_000_000
_SHIPPED = Path(__file__).with_name("profiles")
_UNITS_LIMIT = 16
_SMALLEST_PAGE_BYTES, _LARGEST_PAGE_BYTES = 4 << 10, 1 << 30
_LIMIT_BYTES = 1 << 20
"""No device takes as much to describe; a pipe or a device file may have no end."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class MemoryProfile(_Part):
    """Memory of a device. Sizes may be written as `8GiB`."""

    available: Bytes = Field(description="What a model may take, the reserve included.")
    page: Bytes = Field(default=ByteSize(4096), description="Size of a page: 4096, or 16384 on some arm64 kernels.")
    bytes_per_s: BytesPerSecond = Field(default=_MEMORY_BYTES_PER_S, description="Bandwidth of reading weights.")

    @field_validator("page")
    @classmethod
    def _size_of_a_page(cls, page: ByteSize) -> ByteSize:
        if page & (page - 1) or not _SMALLEST_PAGE_BYTES <= page <= _LARGEST_PAGE_BYTES:
            raise ValueError("a page is a power of two from 4 KiB to 1 GiB")
        return page


class StorageProfile(_Part):
    """Where model files lie."""

    bytes_per_s: BytesPerSecond = Field(default=_STORAGE_BYTES_PER_S, description="Bandwidth of one long read.")
    request_s: float = Field(default=_REQUEST_S, ge=0, le=1, description="Time of one small read.")
    readahead: Bytes = Field(default=ByteSize(128 << 10), description="What one page fault reads ahead.")


class DeviceProfile(_Part):
    """A device as plans see it. The first unit takes whatever the others refuse."""

    name: str = Field(min_length=1, max_length=128, description="What people call it.")
    memory: MemoryProfile = Field(description="Its memory.")
    storage: StorageProfile = Field(default=StorageProfile(), description="Its storage.")
    power: PowerSource | None = Field(default=None, description="What feeds it: mains or battery.")
    units: tuple[UnitProfile, ...] = Field(
        default=(), max_length=_UNITS_LIMIT, description="What computes; the processor first."
    )
    sources: dict[str, str] = Field(
        default={}, description="Where each figure is from, by its path, such as units.cpu.flops_per_s."
    )

    @field_validator("units")
    @classmethod
    def _usable(cls, units: tuple[UnitProfile, ...]) -> tuple[UnitProfile, ...]:
        if len({unit.name for unit in units}) != len(units):
            raise ValueError("two units have the same name")
        if units and (units[0].kind is not UnitKind.CPU or units[0].delegation != PerOperator()):
            raise ValueError("the first unit must be a processor that takes every operator")
        return units


def profile_of(device: DeviceFacts) -> DeviceProfile:
    """This device. Bandwidths are common figures, not measured ones."""
    memory = MemoryProfile(
        available=ByteSize(max(1, device.memory_available_bytes)), page=ByteSize(resource.getpagesize())
    )
    return DeviceProfile(name=device.cpu_model[:128], memory=memory)


def measured(device: DeviceFacts, benchmark: Benchmark, threads: int) -> DeviceProfile:
    """This device with its processor as the micro-benchmark found it on `threads` threads."""
    rates, profile = benchmark.at(threads), profile_of(device)
    processor = UnitProfile(
        name="cpu",
        kind=UnitKind.CPU,
        description=device.cpu_model[:256],
        cores=device.cores_usable,
        features=tuple(sorted(device.cpu_features)),
        flops_per_s=rates.flops_per_s,
        bytes_per_s=rates.bytes_per_s,
    )
    return profile.model_copy(
        update={
            "memory": profile.memory.model_copy(update={"bytes_per_s": rates.bytes_per_s}),
            "power": device.power.source,
            "units": (processor,),
            "sources": dict.fromkeys(("units.cpu.flops_per_s", "units.cpu.bytes_per_s"), "measured here"),
        }
    )


def shipped_profiles() -> tuple[str, ...]:
    """Names of the profiles that come with the product."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.yaml")))


def find_profile(name: str) -> DeviceProfile:
    """The shipped profile `name`, or that in the file `name`; raises as `read_profile`."""
    if name in shipped_profiles():
        return read_profile(_SHIPPED / f"{name}.yaml")
    path = Path(name)
    if not path.exists() and "/" not in name and not path.suffix:
        known = ", ".join(shipped_profiles())
        raise SettingsError(f"There is no profile {name[:64]!r}; shipped are {known}.", param="profile")
    return read_profile(path)


def read_profile(path: Path) -> DeviceProfile:
    """The profile in the YAML file at `path`.

    Raises:
        SettingsError: it cannot be read, or a field is missing, unknown, out of range or stands twice.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_LIMIT_BYTES + 1)
        if len(raw) > _LIMIT_BYTES:
            raise SettingsError(f"The profile {path} is larger than {_LIMIT_BYTES} bytes.", param="profile")
        document = strict_yaml(raw.decode())
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
