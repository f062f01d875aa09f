"""A unit that computes, as plans see it: peaks, memory, what it takes of a graph, and what the engine reaches of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ByteSize, ConfigDict, Field

from edge.devices.delegation import AnyDelegation, PerOperator

Bytes = Annotated[ByteSize, Field(ge=1, le=1 << 50)]
BytesPerSecond = Annotated[float, Field(ge=1, le=1e15)]
Share = Annotated[float, Field(ge=1e-6, le=100)]


class UnitKind(StrEnum):
    """What computes."""

    CPU = "cpu"
    GPU = "gpu"
    NPU = "npu"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Efficiency(_Part):
    """What the engine reaches of a unit's peaks, by class of operator, as calibration measured it; 1: not measured.

    It may exceed 1: peaks are those of 32-bit floats, and engines multiply in 8-bit integers.
    """

    product_flops: Share = Field(default=1.0, description="Matrix products of many tokens: share of peak FLOP/s.")
    product_bytes: Share = Field(default=1.0, description="Matrix products of one token: share of peak bandwidth.")
    attention_decode_flops: Share = Field(default=1.0, description="Attention of one token: share of peak FLOP/s.")
    attention_prefill_flops: Share = Field(default=1.0, description="Attention of many tokens: share of FLOP/s.")


class UnitProfile(_Part):
    """Something that computes."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="Name within the device.")
    kind: UnitKind = Field(description="cpu, gpu or npu.")
    description: str = Field(default="", max_length=256, description="What it is.")
    cores: int | None = Field(default=None, ge=1, le=4096, description="Cores of a processor.")
    features: tuple[str, ...] = Field(default=(), max_length=64, description="Instruction sets.")
    flops_per_s: float = Field(ge=1, le=1e18, description="Peak floating-point operations a second.")
    bytes_per_s: BytesPerSecond = Field(description="Peak bandwidth to the memory that holds the weights.")
    memory: Bytes | None = Field(default=None, description="Memory of its own; none: it shares the device's.")
    link_bytes_per_s: BytesPerSecond | None = Field(
        default=None, description="Bandwidth of handing values over; none: nothing is copied."
    )
    handover_s: float = Field(default=0.0, ge=0, le=1, description="Time of one handover to or from another unit.")
    delegation: AnyDelegation = Field(default=PerOperator(), description="What it takes of a graph.")
    efficiency: Efficiency | None = Field(default=None, description="What the engine reaches; none: not measured.")
