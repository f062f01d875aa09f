"""Keeps compiled pattern databases between starts: compiling takes seconds, loading milliseconds.

What is kept is named by what it was made from, and carries its own hash: a file that was cut or changed is compiled
anew, never asked, because a database that silently finds less would let text out.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from pathlib import Path

_HASH_BYTES = 32
_MODE = 0o600


class KeptPatterns:
    """Files below `folder`, which is made when it is needed. A disk that does not allow it costs time only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, made_from: bytes) -> bytes | None:
        """The database that was made from this; None where there is none that is whole."""
        try:
            kept = self._path(made_from).read_bytes()
        except OSError:
            return None
        stated, data = kept[:_HASH_BYTES], kept[_HASH_BYTES:]
        return data if hashlib.sha256(data).digest() == stated else None

    def keep(self, made_from: bytes, data: bytes) -> None:
        """Write it down in one step for `load`; earlier ones are removed."""
        path = self._path(made_from)
        fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                fresh.touch(mode=_MODE)
                fresh.write_bytes(hashlib.sha256(data).digest() + data)
                fresh.replace(path)
            finally:
                fresh.unlink(missing_ok=True)
            for other in self._folder.glob("*.patterns"):
                if other != path:
                    other.unlink(missing_ok=True)

    def _path(self, made_from: bytes) -> Path:
        return self._folder / f"{hashlib.sha256(made_from).hexdigest()[:32]}.patterns"
