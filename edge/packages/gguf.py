"""Reads the header of a GGUF file within fixed bounds, before any native code sees a byte of it.

Layout (ggml, docs/gguf.md): magic, version, tensor count, key count; keys with typed values; tensor descriptions;
padding to `general.alignment`; tensor data. Whatever the file says, reading takes bounded time and memory: counts,
lengths and the header as a whole are limited, arrays are walked and not kept. Every refusal names the field and
the offset at which it stands.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from edge.packages.ggml_types import (
    ARRAY,
    BOOL,
    PLAUSIBLE_TYPES,
    SCALAR_FORMATS,
    STRING,
    TENSOR_TYPES,
    WITHDRAWN_TYPES,
    TensorType,
)
from shared.errors import ModelCorrupt, UnsupportedFormat

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_PLAUSIBLE_VERSIONS = range(1, 256)
HEADER_LIMIT_BYTES = 64 << 20
KEYS_LIMIT = 4096
TENSORS_LIMIT = 16384
STRINGS_LIMIT = 1 << 20
"""Elements of all string arrays together; the largest vocabularies have a quarter of it."""
KEY_LIMIT_BYTES = 256
TENSOR_NAME_LIMIT_BYTES = 63
STRING_LIMIT_BYTES = 1 << 20
KEPT_TEXT_LIMIT_BYTES = 4 << 20
"""Bytes of all kept strings together; the longest chat templates have a fiftieth of it."""
KEPT_ARRAY_LIMIT = 1024
KEPT_NUMBERS_LIMIT = 1 << 16
"""Elements of all kept arrays together."""
ALIGNMENT_DEFAULT_BYTES = 32
ALIGNMENT_LIMIT_BYTES = 1 << 16
_WINDOW_BYTES = 1 << 20
_PREAMBLE_BYTES = 24


@dataclass(frozen=True, slots=True)
class GgufArray:
    """Where an array lies that is too long to keep: `size_bytes` from `offset`, elements with their lengths."""

    element_type: int
    count: int
    offset: int
    size_bytes: int


Value = int | float | bool | str | tuple[int | float | bool, ...] | GgufArray


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: dimensions innermost first, `offset` and where it is described from the start of the file."""

    name: str
    dimensions: tuple[int, ...]
    type_name: str
    offset: int
    size_bytes: int
    described_offset: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """All that a GGUF file says before its tensor data."""

    version: int
    alignment_bytes: int
    metadata: Mapping[str, Value]
    tensors: tuple[TensorInfo, ...]
    data_offset: int
    file_bytes: int
    extents: Mapping[str, tuple[int, int]]
    """Where each key with its value stands: first byte, and the one behind the last."""

    @property
    def keys_end(self) -> int:
        """Offset behind the last key."""
        return max((end for _, end in self.extents.values()), default=_PREAMBLE_BYTES)


def read_header(fd: int, *, with_data: bool = True) -> GgufHeader:
    """Read and check the header of the open file `fd`, whose position is left alone.

    Without `with_data` the file may end before its tensors do: for plans, never for an engine.

    Raises:
        ModelCorrupt: the bytes are not a GGUF file, contradict themselves, or end early; `param` names the field,
            and for a short file the message gives expected and actual sizes.
        UnsupportedFormat: it is of another version or byte order, or quantised as nothing here reads.
    """
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise ModelCorrupt("At byte 0: the model is not a regular file.", param="file")
    cursor = _Cursor(fd, status.st_size)
    version = _preamble(cursor)
    tensor_count = cursor.count("tensor_count", TENSORS_LIMIT)
    key_count = cursor.count("metadata_kv_count", KEYS_LIMIT)
    extents: dict[str, tuple[int, int]] = {}
    metadata = _metadata(cursor, key_count, extents)
    stated = metadata.get("general.alignment")  # checked where it was read
    alignment = stated if isinstance(stated, int) else ALIGNMENT_DEFAULT_BYTES
    described = [_tensor(cursor, index) for index in range(tensor_count)]
    data_offset = -(-cursor.offset // alignment) * alignment
    if not described:  # a vocabulary file, or the first part of a split one: nothing follows but padding
        data_offset = cursor.offset
    tensors = _placed(described, data_offset, alignment, status.st_size if with_data else None)
    return GgufHeader(version, alignment, metadata, tensors, data_offset, status.st_size, extents)


def _preamble(cursor: _Cursor) -> int:
    if cursor.take("magic", 4) != MAGIC:
        cursor.refuse("magic", "is not that of a GGUF file.")
    version = cursor.scalar("version", "<I")
    if version not in VERSIONS:
        swapped = int.from_bytes(int(version).to_bytes(4, "little"), "big")
        if swapped in _PLAUSIBLE_VERSIONS:
            cursor.unsupported("version", f"is {swapped} in the other byte order, which is not read.")
        told = f"is {version}; versions {VERSIONS[0]} to {VERSIONS[-1]} are read."
        (cursor.unsupported if version in _PLAUSIBLE_VERSIONS else cursor.refuse)("version", told)
    return int(version)


def _metadata(cursor: _Cursor, key_count: int, extents: dict[str, tuple[int, int]]) -> dict[str, Value]:
    """All keys with their values; `extents` is filled with where they stand."""
    metadata: dict[str, Value] = {}
    for index in range(key_count):
        start = cursor.offset
        key = cursor.string(f"key {index}", KEY_LIMIT_BYTES)
        if not key:
            cursor.refuse(f"key {index}", "is empty.")
        if key in metadata:
            cursor.refuse(f"key {index}", f"repeats {key!r}.")
        metadata[key] = value = _value(cursor, key)
        extents[key] = (start, cursor.offset)
        if key == "general.alignment" and not _is_alignment(value):
            cursor.refuse(key, f"is no power of two up to {ALIGNMENT_LIMIT_BYTES}.")
    return metadata


def _value(cursor: _Cursor, key: str) -> Value:
    kind = int(cursor.scalar(f"type of {key}", "<I"))
    if kind == STRING:
        return cursor.string(key, STRING_LIMIT_BYTES)
    if kind == ARRAY:
        return _array(cursor, key)
    if kind not in SCALAR_FORMATS:
        cursor.refuse(f"type of {key}", f"is {kind}, which is no value type.")
    return _native(kind, cursor.scalar(key, SCALAR_FORMATS[kind]))


def _native(kind: int, value: int | float) -> int | float | bool:
    return bool(value) if kind == BOOL else value


def _array(cursor: _Cursor, key: str) -> Value:
    kind = int(cursor.scalar(f"element type of {key}", "<I"))
    if kind != STRING and kind not in SCALAR_FORMATS:
        cursor.refuse(f"element type of {key}", f"is {kind}, which is no type of array elements.")
    count = int(cursor.scalar(f"length of {key}", "<Q"))
    start = cursor.offset
    if kind == STRING:
        cursor.skip_strings(key, count)
        return GgufArray(kind, count, start, cursor.offset - start)
    width = struct.calcsize(SCALAR_FORMATS[kind])
    if count > KEPT_ARRAY_LIMIT or not cursor.can_keep(count):
        cursor.skip(key, count * width)
        return GgufArray(kind, count, start, count * width)
    raw = cursor.take(key, count * width)
    return tuple(_native(kind, value) for (value,) in struct.iter_unpack(SCALAR_FORMATS[kind], raw))


def _is_alignment(value: Value) -> bool:
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    return 1 <= value <= ALIGNMENT_LIMIT_BYTES and not value & (value - 1)


def _tensor(cursor: _Cursor, index: int) -> tuple[int, TensorInfo]:
    """Where a description states its offset, and the description as written: relative to the tensor data."""
    start = cursor.offset
    name = cursor.string(f"name of tensor {index}", TENSOR_NAME_LIMIT_BYTES)
    rank = int(cursor.scalar(f"rank of {name}", "<I"))
    if not 1 <= rank <= 4:
        cursor.refuse(f"rank of {name}", f"is {rank}; it must be 1 to 4.")
    dimensions = struct.unpack(f"<{rank}Q", cursor.take(f"dimensions of {name}", 8 * rank))
    kind = _type_of(cursor, name)
    elements = 1
    for extent in dimensions:
        elements *= extent
    if not 1 <= elements < 1 << 62:
        cursor.refuse(f"dimensions of {name}", "hold a zero or overflow.")
    if dimensions[0] % kind.block_elements:
        cursor.refuse(f"dimensions of {name}", f"do not divide into blocks of {kind.block_elements} ({kind.name}).")
    size_bytes = elements // kind.block_elements * kind.block_bytes
    offset = int(cursor.scalar(f"offset of {name}", "<Q"))
    return cursor.field_offset, TensorInfo(name, dimensions, kind.name, offset, size_bytes, start)


def _type_of(cursor: _Cursor, name: str) -> TensorType:
    """The type of the tensor `name`; one that was withdrawn, or came later, is no damage to the file."""
    field = f"type of {name}"
    number = int(cursor.scalar(field, "<I"))
    if number in WITHDRAWN_TYPES:
        cursor.unsupported(field, f"is {WITHDRAWN_TYPES[number]}, which was withdrawn; no engine reads it.")
    kind = TENSOR_TYPES.get(number)
    if kind is None:
        unknown = cursor.unsupported if number in PLAUSIBLE_TYPES else cursor.refuse
        unknown(field, f"is {number}, which is no tensor type that is known here.")
    return kind


def _placed(
    described: list[tuple[int, TensorInfo]], data_offset: int, alignment: int, file_bytes: int | None
) -> tuple[TensorInfo, ...]:
    """Tensors with offsets in the file. They must follow each other without gap or overlap, as the engine demands."""
    placed: list[TensorInfo] = []
    names: set[str] = set()
    expected = end = data_offset
    if not described:
        expected = -(-end // alignment) * alignment
    for stated_at, tensor in described:
        at = data_offset + tensor.offset
        if tensor.name in names:
            raise ModelCorrupt(f"At byte {stated_at}: tensor {tensor.name!r} is described twice.", param=tensor.name)
        if at != expected:
            fault = (
                "is not aligned" if at % alignment else "overlaps the one before" if at < expected else "leaves a gap"
            )
            raise ModelCorrupt(
                f"At byte {stated_at}: tensor {tensor.name!r} at offset {at} {fault}; offset {expected} was expected.",
                param=tensor.name,
            )
        names.add(tensor.name)
        placed.append(replace(tensor, offset=at))
        end = at + tensor.size_bytes
        expected = -(-end // alignment) * alignment
    if file_bytes is not None and not end <= file_bytes <= expected:
        what = "truncated" if file_bytes < end else "longer than its tensors"
        raise ModelCorrupt(
            f"At byte {min(end, file_bytes)}: the file is {what}: {end} bytes were expected, it has {file_bytes}.",
            param="file",
        )
    return tuple(placed)


class _Cursor:
    """Reads forward through a window, so that memory is bounded by the window and the largest single field."""

    def __init__(self, fd: int, file_bytes: int) -> None:
        self._fd = fd
        self._file_bytes = file_bytes
        self._window = b""
        self._window_offset = 0
        self._at = 0
        self._strings_left = STRINGS_LIMIT
        self._numbers_left = KEPT_NUMBERS_LIMIT
        self._text_left_bytes = KEPT_TEXT_LIMIT_BYTES
        self.field_offset = 0
        """Offset of the field that was read last."""

    @property
    def offset(self) -> int:
        """Offset in the file of the next byte."""
        return self._window_offset + self._at

    def refuse(self, field: str, what: str) -> NoReturn:
        """Raise ModelCorrupt for `field`, the one that was read last."""
        raise ModelCorrupt(f"At byte {self.field_offset}: {field} {what}", param=field)

    def unsupported(self, field: str, what: str) -> NoReturn:
        """Raise UnsupportedFormat for `field`, the one that was read last."""
        raise UnsupportedFormat(f"At byte {self.field_offset}: {field} {what}", param=field)

    def take(self, field: str, size: int) -> bytes:
        """The next `size` bytes."""
        self.field_offset = self.offset
        self._ensure(field, size)
        taken = self._window[self._at : self._at + size]
        self._at += size
        return taken

    def scalar(self, field: str, layout: str) -> int | float:
        """The next number of `struct` format `layout`."""
        value: int | float = struct.unpack(layout, self.take(field, struct.calcsize(layout)))[0]
        return value

    def count(self, field: str, limit: int) -> int:
        """The next 64-bit count, at most `limit`."""
        value = int(self.scalar(field, "<Q"))
        if value > limit:
            self.refuse(field, f"is {value}; at most {limit} are read.")
        return value

    def string(self, field: str, limit_bytes: int) -> str:
        """The next string, at most `limit_bytes` of UTF-8."""
        size = int(self.scalar(f"length of {field}", "<Q"))
        if size > limit_bytes:
            self.refuse(f"length of {field}", f"is {size} bytes; at most {limit_bytes} are read.")
        self._text_left_bytes -= size
        if self._text_left_bytes < 0:
            self.refuse(field, f"is too much text: at most {KEPT_TEXT_LIMIT_BYTES} bytes of it are kept.")
        try:
            return self.take(field, size).decode()
        except UnicodeDecodeError:
            self.refuse(field, "is not UTF-8.")

    def can_keep(self, count: int) -> bool:
        """Count `count` array elements against the budget of kept ones; False when it is spent."""
        self._numbers_left -= count
        return self._numbers_left >= 0

    def skip(self, field: str, size: int) -> None:
        """Pass over `size` bytes that must exist."""
        self.field_offset = self.offset
        self._within(field, size)
        if self._at + size <= len(self._window):
            self._at += size
        else:
            self._window_offset = self.offset + size
            self._window, self._at = b"", 0

    def skip_strings(self, field: str, count: int) -> None:
        """Pass over `count` strings."""
        if count > self._strings_left:
            self.refuse(f"length of {field}", f"is {count}; at most {STRINGS_LIMIT} strings are read.")
        self._strings_left -= count
        unpack = struct.Struct("<Q").unpack_from
        while count:
            self._ensure(field, 8)
            window, at, end = self._window, self._at, len(self._window)
            while count and at + 8 <= end:
                size = unpack(window, at)[0]
                if size > STRING_LIMIT_BYTES or at + 8 + size > end:
                    break
                at += 8 + size
                count -= 1
            self._at = at
            if count and at + 8 <= end:  # the next string reaches beyond the window, or beyond the limit
                self.string_extent(field)
                count -= 1

    def string_extent(self, field: str) -> None:
        """Pass over one string of any position in the window."""
        size = int(self.scalar(f"length in {field}", "<Q"))
        if size > STRING_LIMIT_BYTES:
            self.refuse(f"length in {field}", f"is {size} bytes; at most {STRING_LIMIT_BYTES} are read.")
        self._ensure(field, size)
        self._at += size

    def _within(self, field: str, size: int) -> None:
        end = self.offset + size
        if end > HEADER_LIMIT_BYTES:
            self.refuse(field, f"ends at byte {end}; a header may have {HEADER_LIMIT_BYTES} bytes.")
        if end > self._file_bytes:
            raise ModelCorrupt(
                f"At byte {self.offset}: the file is truncated inside {field}: at least {end} bytes were expected, "
                f"it has {self._file_bytes}.",
                param=field,
            )

    def _ensure(self, field: str, size: int) -> None:
        if self._at + size <= len(self._window):
            return
        self._within(field, size)
        offset = self.offset
        self._window = os.pread(self._fd, max(size, _WINDOW_BYTES), offset)
        self._window_offset, self._at = offset, 0
        if len(self._window) < size:
            raise ModelCorrupt(f"At byte {offset}: the file shrank while {field} was read.", param=field)
