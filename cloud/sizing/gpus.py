"""GPUs to plan for: memory, bandwidth and dense matrix speed, each from the maker's data sheet."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from shared.errors import InvalidRequest

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. Matrix speed is without sparsity; None where the unit has no such type."""

    name: str
    memory_bytes: int
    """As the driver shows it: less than the sales name says, for ECC and firmware take their part."""
    bandwidth_bytes_per_s: float
    flops_16_bit: float
    flops_8_bit: float | None
    link_bytes_per_s: float
    """To its neighbours, one direction, for tensor parallelism."""
    source: str


def _gpu(
    name: str, mib: int, gb_per_s: float, tflops: float, tflops_8: float | None, link_gb_per_s: float, source: str
) -> Gpu:
    return Gpu(
        name=name,
        memory_bytes=mib * _MIB,
        bandwidth_bytes_per_s=gb_per_s * 1e9,
        flops_16_bit=tflops * 1e12,
        flops_8_bit=None if tflops_8 is None else tflops_8 * 1e12,
        link_bytes_per_s=link_gb_per_s * 1e9,
        source=source,
    )


GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("H200-141GB", 143_771, 4_800, 989.4, 1_978.9, 450, "NVIDIA H200 Tensor Core GPU data sheet (SXM)"),
        _gpu("H100-80GB", 81_559, 3_350, 989.4, 1_978.9, 450, "NVIDIA H100 Tensor Core GPU data sheet (SXM5)"),
        _gpu("H100-PCIE-80GB", 81_559, 2_000, 756.4, 1_512.9, 64, "NVIDIA H100 Tensor Core GPU data sheet (PCIe)"),
        _gpu("A100-80GB", 81_920, 2_039, 312, None, 300, "NVIDIA A100 Tensor Core GPU data sheet (SXM4)"),
        _gpu("A100-40GB", 40_960, 1_555, 312, None, 300, "NVIDIA A100 Tensor Core GPU data sheet (SXM4)"),
        _gpu("L40S-48GB", 46_068, 864, 362.05, 733, 32, "NVIDIA L40S GPU data sheet"),
        _gpu("L4-24GB", 23_034, 300, 121, 242.5, 32, "NVIDIA L4 Tensor Core GPU data sheet"),
        _gpu("A10G-24GB", 23_028, 600, 70, None, 32, "NVIDIA A10G data sheet (AWS G5)"),
        _gpu("T4-16GB", 15_360, 320, 65, None, 16, "NVIDIA T4 Tensor Core GPU data sheet (float16; no bfloat16)"),
    )
}


def gpu_named(name: str) -> Gpu:
    """The GPU called `name`, in any letter case.

    Raises:
        InvalidRequest: there is none, with the nearest name.
    """
    found = GPUS.get(name.upper())
    if found is None:
        near = get_close_matches(name.upper(), GPUS, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise InvalidRequest(f"There is no such GPU here; known are {', '.join(GPUS)}.{hint}", param="gpu")
    return found
