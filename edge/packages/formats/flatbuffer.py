"""Reads flatbuffer tables by field number, every offset checked against the buffer.

Source: the binary format (flatbuffers.dev, "Internals"): a table begins with the distance to its vtable, which gives
the place of each field; strings and vectors begin with their length.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from shared.errors import ModelCorrupt

_TEXT_LIMIT_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Table:
    """One table at `offset` of the buffer; `what` names it in errors."""

    data: bytes
    offset: int
    what: str

    def uint32(self, field: int) -> int:
        """A 32-bit field; 0 when it is absent."""
        at = self._field(field)
        return self._number("<I", at) if at else 0

    def uint64(self, field: int) -> int:
        """A 64-bit field; 0 when it is absent."""
        at = self._field(field)
        return self._number("<Q", at) if at else 0

    def text(self, field: int) -> str:
        """A string field, cut to a bound; empty when it is absent."""
        at = self._field(field)
        if not at:
            return ""
        begin, size = self._vector(at, 1)
        return self.data[begin : begin + min(size, _TEXT_LIMIT_BYTES)].decode(errors="replace")

    def tables(self, field: int, limit: int) -> list[Table]:
        """The tables of a vector field; none when it is absent."""
        at = self._field(field)
        if not at:
            return []
        begin, count = self._vector(at, 4)
        if count > limit:
            raise ModelCorrupt(
                f"At byte {at}: {self.what} has {count} entries; at most {limit} are read.", param=self.what
            )
        places = range(begin, begin + 4 * count, 4)
        return [Table(self.data, place + self._number("<I", place), f"{self.what}.{field}") for place in places]

    def _field(self, field: int) -> int:
        """Where the field is; 0 when the table does not have it."""
        vtable = self.offset - self._number("<i", self.offset)
        size = self._number("<H", vtable)
        if size < 4 + 2 * (field + 1):
            return 0
        distance = self._number("<H", vtable + 4 + 2 * field)
        return self.offset + distance if distance else 0

    def _vector(self, at: int, width: int) -> tuple[int, int]:
        """Begin and length of the vector that the offset at `at` leads to."""
        place = at + self._number("<I", at)
        count = self._number("<I", place)
        if place + 4 + width * count > len(self.data):
            raise ModelCorrupt(f"At byte {place}: {self.what} has {count} elements, beyond its end.", param=self.what)
        return place + 4, count

    def _number(self, layout: str, at: int) -> int:
        if not 0 <= at <= len(self.data) - struct.calcsize(layout):
            raise ModelCorrupt(
                f"At byte {at}: {self.what} leads outside of its {len(self.data)} bytes.", param=self.what
            )
        value: int = struct.unpack_from(layout, self.data, at)[0]
        return value


def root_of(data: bytes, what: str) -> Table:
    """The root table of a buffer.

    Raises:
        ModelCorrupt: the buffer is shorter than its root.
    """
    if len(data) < 8:
        raise ModelCorrupt(f"At byte 0: {what} has {len(data)} bytes.", param=what)
    return Table(data, struct.unpack_from("<I", data, 0)[0], what)
