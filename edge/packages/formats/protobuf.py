"""Walks protocol-buffer messages without their schema: fields by number, every length checked against what is there.

Source: the wire format (protobuf.dev, "Encoding"). Values stay views into the message; nothing is copied.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NoReturn

from shared.errors import ModelCorrupt

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIELDS_LIMIT = 4_000_000


class Message:
    """One message. `what` names it in errors; `offset` is where it begins in its file."""

    def __init__(self, data: memoryview, what: str, offset: int = 0) -> None:
        self._data = data
        self._what = what
        self._offset = offset

    def fields(self) -> Iterator[tuple[int, int, int, memoryview]]:
        """Number, wire type, integer value (of numbers) and bytes (of what has a length) of each field.

        Raises:
            ModelCorrupt: a field is malformed or reaches beyond the message; the message says where.
        """
        at, end = 0, len(self._data)
        for _ in range(_FIELDS_LIMIT):
            if at == end:
                break
            begin = at
            tag, at = self._varint(at)
            number, kind = tag >> 3, tag & 7
            if not number:
                self._refuse(begin, "has a field of number 0")
            if kind == VARINT:
                value, at = self._varint(at)
                yield number, kind, value, self._data[:0]
            elif kind == BYTES:
                size, at = self._varint(at)
                self._require(begin, at, size)
                yield number, kind, at, self._data[at : at + size]
                at += size
            elif kind in (FIXED32, FIXED64):
                size = 4 if kind == FIXED32 else 8
                self._require(begin, at, size)
                yield number, kind, struct.unpack_from("<I" if size == 4 else "<Q", self._data, at)[0], self._data[:0]
                at += size
            else:
                self._refuse(begin, f"has a field of unknown wire type {kind}")
        if at < end:
            self._refuse(at, "has too many fields")

    def message(self, position: int, data: memoryview, what: str) -> Message:
        """The message in a field of this one, as `fields` gave it."""
        return Message(data, what, self._offset + position)

    def _varint(self, at: int) -> tuple[int, int]:
        value = shift = 0
        begin = at
        while at < len(self._data) and shift < 70 and self._data[at] >= 0x80:
            value |= (self._data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
        if at >= len(self._data) or shift >= 70:
            self._refuse(begin, "has a number without an end")
        return (value | self._data[at] << shift) & (1 << 64) - 1, at + 1

    def _require(self, begin: int, at: int, size: int) -> None:
        if size > len(self._data) - at:
            self._refuse(begin, f"has a field of {size} bytes where {len(self._data) - at} are left")

    def _refuse(self, at: int, what: str) -> NoReturn:
        raise ModelCorrupt(f"At byte {self._offset + at}: {self._what} {what}.", param=self._what)


def text(data: memoryview, limit: int = 1024) -> str:
    """A string field, cut to `limit` bytes; bytes that are no UTF-8 become replacement marks."""
    return bytes(data[:limit]).decode(errors="replace")


def packed_varints(kind: int, value: int, data: memoryview) -> list[int]:
    """The integers of one occurrence of a repeated integer field, packed or not."""
    if kind == VARINT:
        return [value]
    found, current, shift = [], 0, 0
    for byte in data:
        current |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(current & (1 << 64) - 1)
            current = shift = 0
    return found
