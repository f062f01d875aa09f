"""Decides whether a folder is a PEFT LoRA adapter for one base model, before an engine sees a byte of it.

A folder holds `adapter_config.json` and `adapter_model.safetensors`; the latter begins with the length of its header
(8 bytes, little endian) and the header, a JSON object of names with type, shape and place (safetensors, format). vLLM
finds a rank over its limit only when the adapter is first used, and weights that are no numbers never.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cloud.sizing.geometry import Geometry
from shared.errors import AdapterRejected

CONFIG_FILE, WEIGHTS_FILE = "adapter_config.json", "adapter_model.safetensors"
_CONFIG_BYTES, _HEADER_BYTES = 1 << 20, 16 << 20
_SIDE = re.compile(
    r"base_model\.model\.(?:model\.)?layers\.(\d{1,5})\.(?:self_attn|mlp)\.([a-z]+_proj)\.lora_([AB])\.weight\Z"
)
_CHUNK_ELEMENTS = 1 << 20
_TYPES: dict[str, tuple[str, int | None]] = {"F32": ("<f4", None), "F16": ("<f2", None), "BF16": ("<u2", 0x7F80)}
"""How each type is read; bfloat16 as bits, whose exponent is all ones where it is no finite number."""


class PeftConfig(BaseModel):
    """What matters of `adapter_config.json`. Kinds of LoRA that vLLM does not compute are refused."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    peft_type: Literal["LORA"]
    r: int = Field(ge=1, le=4096)
    lora_alpha: float = Field(gt=0)
    bias: Literal["none"] = "none"
    use_dora: Literal[False] = False
    fan_in_fan_out: Literal[False] = False
    modules_to_save: tuple[()] | None = None
    rank_pattern: dict[str, int] = Field(default_factory=dict)
    alpha_pattern: dict[str, float] = Field(default_factory=dict, max_length=0)


class AdapterFacts(BaseModel):
    """What the weights say of themselves."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    rank: int = Field(ge=1)
    """The largest of its modules' ranks."""
    alpha: float
    modules: int = Field(ge=1)
    parameters: int = Field(ge=1)


@dataclass(frozen=True, slots=True)
class _Tensor:
    type_name: str
    shape: tuple[int, ...]
    begin: int
    end: int


def inspect(folder: Path, base: Geometry, *, rank_limit: int) -> AdapterFacts:
    """Check the adapter in `folder` against `base` and return what it says.

    Raises:
        AdapterRejected: it is broken, no LoRA adapter, for another base, over the limit, or not finite.
    """
    config = _config(folder / CONFIG_FILE)
    tensors, data_at = _header(folder / WEIGHTS_FILE)
    ranks = _ranks(tensors, base)
    rank = max(*ranks.values(), config.r, *config.rank_pattern.values())
    if rank > rank_limit:
        raise rank_too_high(rank, rank_limit)
    if set(ranks.values()) != {config.r}:
        # The engine scales every module by alpha over r, whatever its own rank is.
        raise AdapterRejected("Modules with ranks of their own are not supported.", param="r", code="unsupported")
    _check_values(folder / WEIGHTS_FILE, tensors, data_at)
    parameters = sum(math.prod(tensor.shape) for tensor in tensors.values())
    return AdapterFacts(rank=rank, alpha=config.lora_alpha, modules=len(ranks), parameters=parameters)


def rank_too_high(rank: int, limit: int) -> AdapterRejected:
    """The error for a rank over the limit, with both figures."""
    return AdapterRejected(
        f"The adapter has rank {rank}; at most rank {limit} is allowed (adapters.rank_limit).",
        param="rank",
        code="rank_too_high",
    )


def _config(path: Path) -> PeftConfig:
    try:
        with path.open("rb") as file:
            return PeftConfig.model_validate_json(file.read(_CONFIG_BYTES + 1))
    except OSError:
        raise AdapterRejected(f"{CONFIG_FILE} is missing or cannot be read.", param=CONFIG_FILE) from None
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"])
        raise AdapterRejected(
            f"{CONFIG_FILE} is not that of a LoRA adapter that can be served.", param=where or CONFIG_FILE
        ) from None


def _header(path: Path) -> tuple[dict[str, _Tensor], int]:
    """Tensors by name, and where their data begin."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(_HEADER_BYTES, size - 8):
                raise _broken("its header does not fit")
            document = orjson.loads(file.read(length))
    except OSError:
        raise AdapterRejected(f"{WEIGHTS_FILE} is missing or cannot be read.", param=WEIGHTS_FILE) from None
    except orjson.JSONDecodeError:
        raise _broken("its header is no JSON") from None
    if not isinstance(document, dict):
        raise _broken("its header is no object")
    document.pop("__metadata__", None)
    tensors = {name: _tensor(name, entry) for name, entry in document.items()}
    at = 0
    for tensor in sorted(tensors.values(), key=lambda each: each.begin):
        if tensor.begin != at:
            raise _broken("its tensors overlap or leave holes")
        at = tensor.end
    if not tensors or 8 + length + at != size:
        raise _broken("it is shorter or longer than its header says")
    return tensors, 8 + length


def _tensor(name: str, entry: Any) -> _Tensor:
    try:
        kind, shape = entry["dtype"], tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        width = np.dtype(_TYPES[kind][0]).itemsize
    except (KeyError, TypeError, ValueError):
        raise AdapterRejected(f"A tensor is not of type {', '.join(_TYPES)}.", param=name[:200]) from None
    if not all(type(n) is int and n > 0 for n in shape) or end - begin != math.prod(shape) * width or begin < 0:
        raise AdapterRejected("A tensor's size does not match its shape.", param=name[:200])
    return _Tensor(kind, shape, begin, end)


def _ranks(tensors: dict[str, _Tensor], base: Geometry) -> dict[str, int]:
    """The rank of each module, by layer and name."""
    sides: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, tensor in tensors.items():
        found = _SIDE.match(name)
        if found is None or int(found[1]) >= base.layers:
            raise _mismatch(name, "the base model has no such matrix")
        sides.setdefault(f"{found[1]}.{found[2]}", {})[found[3]] = tensor.shape
    return {module: _rank(module, shapes, base) for module, shapes in sides.items()}


def _rank(module: str, shapes: dict[str, tuple[int, ...]], base: Geometry) -> int:
    expected = _matrices(base).get(module.partition(".")[2])
    if expected is None:
        raise _mismatch(module, "the base model has no such matrix")
    if set(shapes) != {"A", "B"} or any(len(shape) != 2 for shape in shapes.values()):
        raise _mismatch(module, "an adapter has two sides, each a matrix")
    (rank, columns), (rows, other) = shapes["A"], shapes["B"]
    if (columns, rows) != expected:
        raise _mismatch(
            module, f"it goes from {columns} to {rows}, the base model's from {expected[0]} to {expected[1]}"
        )
    if rank != other:
        raise _mismatch(module, f"it has rank {rank} on one side and {other} on the other")
    return rank


def _matrices(base: Geometry) -> dict[str, tuple[int, int]]:
    """Columns and rows of each matrix of a layer."""
    query, keys = base.heads * base.head_length, base.kv_heads * base.head_length
    return {
        "q_proj": (base.hidden, query),
        "k_proj": (base.hidden, keys),
        "v_proj": (base.hidden, keys),
        "o_proj": (query, base.hidden),
        "gate_proj": (base.hidden, base.feed_forward),
        "up_proj": (base.hidden, base.feed_forward),
        "down_proj": (base.feed_forward, base.hidden),
    }


def _check_values(path: Path, tensors: dict[str, _Tensor], data_at: int) -> None:
    with path.open("rb") as file:
        for name, tensor in tensors.items():
            code, exponent = _TYPES[tensor.type_name]
            file.seek(data_at + tensor.begin)
            left = math.prod(tensor.shape)
            while left:
                values = np.fromfile(file, dtype=code, count=min(left, _CHUNK_ELEMENTS))
                if not values.size:
                    raise _broken("it shrank while it was read")
                finite = np.isfinite(values) if exponent is None else (values & exponent) != exponent
                if not finite.all():
                    raise AdapterRejected("A weight is not a finite number.", param=name[:200], code="not_finite")
                left -= values.size


def _broken(what: str) -> AdapterRejected:
    return AdapterRejected(f"{WEIGHTS_FILE} is broken: {what}.", param=WEIGHTS_FILE)


def _mismatch(name: str, what: str) -> AdapterRejected:
    return AdapterRejected(f"The adapter does not fit its base model: {what}.", param=name[:200], code="base_mismatch")
