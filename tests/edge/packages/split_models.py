"""Splits a GGUF file as `gguf-split` does, for tests of joining."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from edge.packages.ggml_types import TENSOR_TYPES
from edge.packages.gguf import TensorInfo, read_header

_NUMBERS = {kind.name: number for number, kind in TENSOR_TYPES.items()}
_UINT16, _INT32 = 2, 5


def key(name: str, kind: int, value: int) -> bytes:
    """One scalar key as the file stores it."""
    return struct.pack(f"<Q{len(name)}sI", len(name), name.encode(), kind) + struct.pack(
        {_UINT16: "<H", _INT32: "<i"}[kind], value
    )


def split(source: Path, folder: Path, sizes: Sequence[int], stem: str = "part") -> list[Path]:
    """Write parts with so many tensors each (0 in the first: keys alone, as `--no-tensor-first-split` does)."""
    raw = source.read_bytes()
    with source.open("rb") as file:
        header = read_header(file.fileno())
    assert sum(sizes) == len(header.tensors)
    folder.mkdir(exist_ok=True)
    kept = [raw[start:end] for start, end in header.extents.values()]
    written, at = [], 0
    for number, size in enumerate(sizes):
        tensors = header.tensors[at : at + size]
        at += size
        keys = [*(kept if number == 0 else ()), key("split.no", _UINT16, number)]
        keys += [key("split.count", _UINT16, len(sizes)), key("split.tensors.count", _INT32, len(header.tensors))]
        head = struct.pack("<4sIQQ", b"GGUF", header.version, len(tensors), len(keys)) + b"".join(keys)
        data, described = b"", b""
        for tensor in tensors:
            described += _described(tensor, len(data))
            data += raw[tensor.offset : tensor.offset + tensor.size_bytes]
            data += bytes(-len(data) % header.alignment_bytes)
        head += described
        path = folder / f"{stem}-{number + 1:05}-of-{len(sizes):05}.gguf"
        path.write_bytes(head + bytes(-len(head) % header.alignment_bytes) + data)
        written.append(path)
    return written


def _described(tensor: TensorInfo, offset: int) -> bytes:
    name = tensor.name.encode()
    rank = len(tensor.dimensions)
    return struct.pack(
        f"<Q{len(name)}sI{rank}QIQ", len(name), name, rank, *tensor.dimensions, _NUMBERS[tensor.type_name], offset
    )
