"""Joins the parts of a split GGUF model into the one file that is installed, as it was before it was split.

`gguf-split` names parts `NAME-00001-of-00003.gguf`. The first states all keys, each describes tensors of its own, and
`split.no`, `split.count` and `split.tensors.count` say how they belong together. Joined, these three keys go, offsets
are counted anew, and bytes of keys and tensors are taken over: equal parts give equal bytes, whoever joins them.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from edge.packages.formats.files import opened_file
from edge.packages.ggml_types import TENSOR_TYPES
from edge.packages.gguf import MAGIC, GgufHeader, TensorInfo, read_header
from edge.packages.staging import Readable
from shared.errors import FileMissing, ModelCorrupt

PARTS_LIMIT = 999
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_NUMBERS = {kind.name: number for number, kind in TENSOR_TYPES.items()}
_NO, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"


@dataclass(frozen=True, slots=True)
class PartName:
    """The name of one part of a split model."""

    stem: str
    count: int

    @property
    def all(self) -> tuple[str, ...]:
        """The names of all parts, in order."""
        return tuple(f"{self.stem}-{number:05}-of-{self.count:05}.gguf" for number in range(1, self.count + 1))


def part_name(file_name: str) -> PartName | None:
    """What `file_name` says of a split model; None for every other file."""
    found = _PART.fullmatch(file_name)
    if found is None or not 1 <= int(found["number"]) <= int(found["count"]) <= PARTS_LIMIT:
        return None
    return PartName(found["stem"], int(found["count"]))


def parts_at(path: Path) -> tuple[Path, ...]:
    """The parts of the split model that `path` is a part of, or that are alone in the folder `path`; else none.

    Raises:
        FileMissing: one of them is not there.
    """
    if path.is_dir():
        names = sorted(entry.name for entry in path.iterdir())
        named = part_name(names[0]) if names else None
        if named is None or not set(names) <= set(named.all):
            return ()
        folder = path
    else:
        named, folder = part_name(path.name), path.parent
    if named is None:
        return ()
    parts = tuple(folder / name for name in named.all)
    for part in parts:
        if not part.is_file():
            raise FileMissing(f"{part.name} is missing: the model is split into {named.count} files.", param=part.name)
    return parts


def joined_bytes(parts: Sequence[Path]) -> int:
    """Size of the joined file; raises as `joined`."""
    with _opened(parts) as descriptors:
        return _plan(descriptors).size_bytes


@contextmanager
def joined(parts: Sequence[Path]) -> Iterator[Readable]:
    """The joined file as a stream.

    Raises:
        ModelCorrupt: a part is broken, or is not the part that its place asks for.
    """
    with _opened(parts) as descriptors:
        yield _Stream(_plan(descriptors))


@dataclass(frozen=True, slots=True)
class _Piece:
    """Bytes of one tensor in one part, and the padding behind them."""

    descriptor: int
    offset: int
    size_bytes: int
    padding_bytes: int


@dataclass(frozen=True, slots=True)
class _Plan:
    header: bytes
    pieces: tuple[_Piece, ...]

    @property
    def size_bytes(self) -> int:
        return len(self.header) + sum(piece.size_bytes + piece.padding_bytes for piece in self.pieces)


@contextmanager
def _opened(parts: Sequence[Path]) -> Iterator[tuple[int, ...]]:
    with ExitStack() as stack:
        descriptors = []
        for part in parts:
            descriptors.append(opened_file(part.parent, part.name))
            stack.callback(os.close, descriptors[-1])
        yield tuple(descriptors)


def _plan(descriptors: Sequence[int]) -> _Plan:
    headers = [read_header(descriptor) for descriptor in descriptors]
    first, count = headers[0], len(headers)
    tensors = sum(len(header.tensors) for header in headers)
    for number, header in enumerate(headers):
        _require(header, number, count, {_NO: number, _COUNT: count})
    for number, header in enumerate(headers):
        _require(header, number, count, {_TENSORS: tensors})
    pieces, described, at = [], [], 0
    for descriptor, header in zip(descriptors, headers, strict=True):
        for tensor in header.tensors:
            padding = -tensor.size_bytes % first.alignment_bytes
            described.append(_described(tensor, at))
            pieces.append(_Piece(descriptor, tensor.offset, tensor.size_bytes, padding))
            at += tensor.size_bytes + padding
    kept = [extent for key, extent in first.extents.items() if key not in (_NO, _COUNT, _TENSORS)]
    header_bytes = b"".join(
        [
            MAGIC,
            struct.pack("<IQQ", first.version, tensors, len(kept)),
            *(os.pread(descriptors[0], end - start, start) for start, end in kept),
            *described,
        ]
    )
    return _Plan(header_bytes + bytes(-len(header_bytes) % first.alignment_bytes), tuple(pieces))


def _require(header: GgufHeader, number: int, count: int, expected: Mapping[str, int]) -> None:
    """Refuse a part whose own words contradict where it stands."""
    for key, value in expected.items():
        found = header.metadata.get(key)
        if isinstance(found, bool) or found != value:
            shown = "missing" if found is None else repr(found)[:40]
            raise ModelCorrupt(f"Part {number + 1} of {count}: {key} is {shown}; {value} was expected.", param=key)


def _described(tensor: TensorInfo, offset: int) -> bytes:
    name = tensor.name.encode()
    return struct.pack(
        f"<Q{len(name)}sI{len(tensor.dimensions)}QIQ",
        len(name), name, len(tensor.dimensions), *tensor.dimensions, _NUMBERS[tensor.type_name], offset,
    )  # fmt: skip


class _Stream:
    """Header, then every tensor with its padding."""

    def __init__(self, plan: _Plan) -> None:
        self._ready = plan.header
        self._pieces = iter(plan.pieces)
        self._piece = _Piece(-1, 0, 0, 0)
        self._done = 0

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size`; none at the end."""
        while not self._ready:
            piece = self._piece
            if self._done < piece.size_bytes:
                wanted = min(size, piece.size_bytes - self._done)
                chunk = os.pread(piece.descriptor, wanted, piece.offset + self._done)
                if not chunk:
                    raise ModelCorrupt("A part shrank while it was read.", param="file")
                self._done += len(chunk)
                return chunk
            self._ready = bytes(piece.padding_bytes)
            following = next(self._pieces, None)
            if following is None:
                self._piece = _Piece(-1, 0, 0, 0)
                break
            self._piece, self._done = following, 0
        taken, self._ready = self._ready[:size], self._ready[size:]
        return taken
