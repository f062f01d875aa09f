"""Reads the small text files by which a kernel tells of the machine; one that cannot be read is a value, no error."""

from __future__ import annotations

import os
from pathlib import Path

_MOST_BYTES = 64 << 10


def text_of(path: Path) -> str | None:
    """The file's stripped text, of its first 64 KiB; None where it cannot be read (gone, EINVAL, ENODEV) or is empty.

    Never waits for a writer: what is put in place of a file, such as a pipe, reads as empty. A driver may still take
    its time.
    """
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            raw = file.read(_MOST_BYTES) or b""
    except OSError:
        return None
    return raw.decode("ascii", "replace").strip() or None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
