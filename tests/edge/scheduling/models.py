"""Models and units that several tests plan with."""

from __future__ import annotations

from edge.devices.delegation import AnyDelegation, PerOperator
from edge.devices.unit import UnitKind, UnitProfile
from edge.memory.geometry import ModelGeometry
from edge.scheduling.graph import Model

GEOMETRY = ModelGeometry(
    architecture="llama",
    embedding_length=576,
    feed_forward_length=1536,
    heads=9,
    kv_heads_by_layer=(3,) * 30,
    key_length=64,
    value_length=64,
    vocabulary_tokens=49152,
    trained_context_tokens=8192,
)
TENSORS = {
    "embedding": {"Q8_0": 30081024},
    "qkv": {"Q4_1": 10368000},
    "attention_output": {"Q4_1": 6220800},
    "feed_forward": {"Q4_1": 49766400},
    "other": {"F32": 140544},
}
MODEL = Model(GEOMETRY, TENSORS)


def processor(flops_per_s: float = 48e9, bytes_per_s: float = 13.6e9, cores: int = 4) -> UnitProfile:
    return UnitProfile(name="cpu", kind=UnitKind.CPU, cores=cores, flops_per_s=flops_per_s, bytes_per_s=bytes_per_s)


def accelerator(
    name: str = "gpu",
    kind: UnitKind = UnitKind.GPU,
    delegation: AnyDelegation | None = None,
    *,
    times: float = 20,
    handover_s: float = 3e-5,
    memory: int | None = None,
) -> UnitProfile:
    """A unit so many times as fast as the processor above."""
    return UnitProfile.model_validate(
        {
            "name": name,
            "kind": kind,
            "flops_per_s": 48e9 * times,
            "bytes_per_s": 13.6e9 * times,
            "link_bytes_per_s": 1e10,
            "handover_s": handover_s,
            "memory": memory,
            "delegation": delegation or PerOperator(),
        }
    )
