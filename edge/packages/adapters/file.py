"""Decides whether an open GGUF file is a LoRA adapter for one base model, before any native code sees a byte of it.

Layout (llama.cpp, `src/llama-adapter.cpp`): for each adapted tensor NAME of the base, `NAME.lora_a` of columns x rank
and `NAME.lora_b` of rank x rows; for the token embedding the two sides are exchanged. The engine finds most of this
out too, but late, in words that no client can act on, and weights that are no numbers not at all.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from edge.packages.gguf import GgufHeader, TensorInfo, read_header
from shared.errors import AdapterRejected

BASE_DIGEST_KEY = "isthmus.base.digest"
"""Where a trainer may state the digest of the base model, as `sha256:` + 64 hex digits."""
_SIDES = (".lora_a", ".lora_b")
_EMBEDDING = "token_embd.weight"
_CHUNK_BLOCKS = 1 << 19


@dataclass(frozen=True, slots=True)
class Base:
    """The model that an adapter is held against."""

    digest: str
    architecture: str
    tensors: Mapping[str, tuple[int, ...]]
    """Dimensions by name, innermost first."""


class AdapterFacts(BaseModel):
    """All that the header of an adapter file states."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    architecture: str
    rank: int = Field(ge=1)
    """The largest of its modules' ranks."""
    alpha: float
    modules: int = Field(ge=1)
    parameters: int = Field(ge=1)
    types: tuple[str, ...]
    weight_bytes: int = Field(ge=1)
    stated_base_digest: str | None = None


def base_of(fd: int, digest: str) -> Base:
    """The open base model `fd`, whose digest is `digest`; raises ModelCorrupt as `read_header`."""
    header = read_header(fd)
    tensors = {tensor.name: tensor.dimensions for tensor in header.tensors}
    return Base(digest, str(header.metadata.get("general.architecture")), tensors)


def inspect(fd: int, base: Base, *, rank_limit: int) -> AdapterFacts:
    """Check the header of the open file `fd` against `base` and return what it says.

    Raises:
        ModelCorrupt: the file is broken or contradicts itself.
        AdapterRejected: it is whole, but no adapter, or none for this base and this rank limit; `code` says which.
    """
    header = read_header(fd)
    alpha = _require_adapter(header, base)
    pairs = _pairs(header)
    ranks = [_checked_rank(name, a, b, base) for name, (a, b) in pairs.items()]
    if max(ranks) > rank_limit:
        raise AdapterRejected(
            f"The adapter has rank {max(ranks)}; at most rank {rank_limit} is allowed (edge.adapters.rank_limit).",
            param="rank",
            code="rank_too_high",
        )
    return AdapterFacts(
        architecture=base.architecture,
        rank=max(ranks),
        alpha=alpha,
        modules=len(pairs),
        parameters=sum(math.prod(tensor.dimensions) for tensor in header.tensors),
        types=tuple(sorted({tensor.type_name for tensor in header.tensors})),
        weight_bytes=sum(tensor.size_bytes for tensor in header.tensors),
        stated_base_digest=_stated_digest(header, base),
    )


def check_values(fd: int) -> None:
    """Read every weight of the open adapter `fd`: one that is no finite number would make every answer nonsense.

    Raises:
        AdapterRejected: a weight is not finite; `param` is its tensor.
    """
    for tensor in read_header(fd).tensors:
        layout = _LAYOUTS[tensor.type_name]
        at, end = tensor.offset, tensor.offset + tensor.size_bytes
        while at < end:
            chunk = os.pread(fd, min(_CHUNK_BLOCKS * layout.block_bytes, end - at), at)
            if not chunk:
                raise AdapterRejected("The file shrank while it was read.", param="file", code="model_corrupt")
            # Strided and translated in C: a megabyte takes a millisecond.
            high = chunk[layout.high_byte :: layout.block_bytes]
            if len(high.translate(None, layout.not_finite)) != len(high):
                raise AdapterRejected(
                    f"{tensor.name} holds a value that is not a finite number.", param=tensor.name, code="not_finite"
                )
            at += len(chunk)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the highest byte of the floating-point number in a block lies, and which of its values are refused."""

    block_bytes: int
    high_byte: int
    not_finite: bytes


_HALF = bytes(high for high in range(256) if high & 0x7C == 0x7C)
"""5 exponent bits, all set: infinite or no number."""
_SINGLE = bytes(high for high in range(256) if high & 0x7F == 0x7F)
"""The upper 7 of 8 exponent bits, all set: no number, infinite, or beyond 1.7e38, which no weight is."""
_LAYOUTS = {
    "F32": _Layout(4, 3, _SINGLE),
    "BF16": _Layout(2, 1, _SINGLE),
    "F16": _Layout(2, 1, _HALF),
    "Q8_0": _Layout(34, 1, _HALF),
}


def _require_adapter(header: GgufHeader, base: Base) -> float:
    """The adapter's alpha."""
    metadata = header.metadata
    for key, expected in (("general.type", "adapter"), ("adapter.type", "lora")):
        if metadata.get(key) != expected:
            raise AdapterRejected(
                f"{key} is {_shown(metadata.get(key))}; {expected!r} was expected.", param=key, code="not_an_adapter"
            )
    architecture = metadata.get("general.architecture")
    if architecture != base.architecture:
        raise AdapterRejected(
            f"The adapter is for {_shown(architecture)}, the base model is {base.architecture!r}.",
            param="general.architecture",
            code="base_mismatch",
        )
    if any(key.startswith("adapter.alora.") for key in metadata):
        # It acts from certain tokens on, which the engine does per answer and our cache rules do not know.
        raise AdapterRejected("Activated adapters are not supported.", param="adapter.alora", code="unsupported")
    alpha = metadata.get("adapter.lora.alpha")
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise AdapterRejected(
            "adapter.lora.alpha is missing or no finite number.", param="adapter.lora.alpha", code="model_corrupt"
        )
    return float(alpha)


def _stated_digest(header: GgufHeader, base: Base) -> str | None:
    stated = header.metadata.get(BASE_DIGEST_KEY)
    if stated is None:
        return None
    if stated != base.digest:
        raise AdapterRejected(
            f"The adapter was made for {_shown(stated)}; the base model is {base.digest}.",
            param=BASE_DIGEST_KEY,
            code="base_mismatch",
        )
    return base.digest


def _pairs(header: GgufHeader) -> dict[str, tuple[TensorInfo, TensorInfo]]:
    """Both sides of each adapted tensor, by its name in the base model."""
    sides: dict[str, dict[str, TensorInfo]] = {}
    for tensor in header.tensors:
        name, suffix = tensor.name[:-7], tensor.name[-7:]
        if suffix not in _SIDES:
            raise _mismatch(tensor.name, "is no side of an adapted tensor (.lora_a or .lora_b)")
        if tensor.type_name not in _LAYOUTS:
            raise _mismatch(tensor.name, f"is stored as {tensor.type_name}; {', '.join(_LAYOUTS)} are supported")
        sides.setdefault(name, {})[suffix] = tensor
    if not sides:
        raise AdapterRejected("The file holds no tensors.", param="tensor_count", code="not_an_adapter")
    for name, found in sides.items():
        if len(found) < len(_SIDES):
            raise _mismatch(name, "has one side of its adapter and not the other")
    return {name: (found[".lora_a"], found[".lora_b"]) for name, found in sides.items()}


def _checked_rank(name: str, a: TensorInfo, b: TensorInfo, base: Base) -> int:
    target = base.tensors.get(name)
    if target is None:
        raise _mismatch(name, "is adapted, and the base model has no such tensor")
    if len(target) != 2 or len(a.dimensions) != 2 or len(b.dimensions) != 2:
        raise _mismatch(name, "is not a matrix on all sides")
    columns, rows = reversed(target) if name == _EMBEDDING else target
    if (a.dimensions[0], b.dimensions[1]) != (columns, rows):
        raise _mismatch(
            name, f"is adapted from {a.dimensions[0]} to {b.dimensions[1]}; the base model has {columns} to {rows}"
        )
    if a.dimensions[1] != b.dimensions[0]:
        raise _mismatch(name, f"has rank {a.dimensions[1]} on one side and {b.dimensions[0]} on the other")
    return a.dimensions[1]


def _mismatch(name: str, what: str) -> AdapterRejected:
    return AdapterRejected(f"{name} {what}.", param=name, code="tensor_mismatch")


def _shown(value: object) -> str:
    """A header value for a message: short and printable whatever the file says."""
    return "missing" if value is None else ascii(value)[:80]
