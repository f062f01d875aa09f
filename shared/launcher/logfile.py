"""Log files of child programs: follows them line by line, bounds their size, finds the error line of one that failed.

Programs write to the file themselves, not into a pipe of the launcher, so that none of them is blocked or killed by
a broken pipe when the launcher is slow or gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_TAIL_BYTES = 64 * 1024
_READ_BYTES = 256 * 1024
_LINE_BYTES = 4096


class LogFile:
    """Reads what was added since the last look; starts the file again at `limit_bytes`."""

    def __init__(self, path: Path, *, limit_bytes: int) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._offset = 0
        self._rest = b""

    def new_lines(self) -> Iterator[bytes]:
        """Whole lines added since the last call, at most a quarter of a MiB of them; long ones are cut."""
        try:
            size = self._path.stat().st_size
        except FileNotFoundError:
            return
        if size > self._offset:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(_READ_BYTES)
            self._offset += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            yield from (line[:_LINE_BYTES] for line in lines)
            self._rest = self._rest[-_LINE_BYTES:]
        elif size >= self._limit_bytes:
            # The writers append, so they go on at the new end.
            os.truncate(self._path, 0)
            self._offset = 0


def error_line(path: Path) -> str | None:
    """What the program of `path` said went wrong: its last `error: …` line, else its last line that is no log event."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        text = file.read().decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("error: ")]
    if said:
        return said[-1].removeprefix("error: ").rstrip(".")
    plain = [line for line in lines if not line.startswith("{")]
    return plain[-1][:300].rstrip(".") if plain else None
