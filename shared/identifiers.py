"""Makes random ids: 96 bits in hex, drawn from the system in blocks, as a system call for each would cost more."""

from __future__ import annotations

import os

_ID_BYTES = 12
_BLOCK_IDS = 256


class Identifiers:
    """A source of ids. One process draws from it; two sources never give the same."""

    def __init__(self) -> None:
        self._block = ""
        self._at = 0

    def new(self) -> str:
        """An id that nobody can foresee."""
        if self._at >= len(self._block):
            self._block, self._at = os.urandom(_ID_BYTES * _BLOCK_IDS).hex(), 0
        start, self._at = self._at, self._at + 2 * _ID_BYTES
        return self._block[start : self._at]
