"""Remembers which backends an operator took out of service; kept in a file, so that a restart does not undo it.

Several routers may share the file: it is read again whenever it has changed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

import orjson
from pydantic import TypeAdapter, ValidationError

from shared import logs
from shared.clock import Clock
from shared.errors import SettingsError

_CONTENT = TypeAdapter(dict[str, float])


class Drains:
    """Backend ids, and since when (Unix seconds) nothing new is sent there."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Raises: SettingsError: the file is there and cannot be read."""
        self._path = path
        self._clock = clock
        self._log = logs.get("drains")
        self._since: dict[str, float] = {}
        self._stamp: tuple[int, int, int] | None = None
        self.look()

    def __contains__(self, backend_id: object) -> bool:
        return backend_id in self._since

    def since(self) -> dict[str, float]:
        """All of them."""
        return dict(self._since)

    def add(self, backend_id: str) -> None:
        """Send nothing new to this backend, known or not."""
        self.look()
        self._write({**self._since, backend_id: self._since.get(backend_id, round(self._clock.unix_s(), 3))})
        self._log.info("backend_drained", backend=backend_id)

    def remove(self, backend_id: str) -> None:
        """Send to it again; nothing changes where it was not drained."""
        self.look()
        if backend_id in self._since:
            self._write({each: since for each, since in self._since.items() if each != backend_id})
            self._log.info("backend_resumed", backend=backend_id)

    def look(self) -> None:
        """Take over what another router has written."""
        try:
            status = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp == self._stamp:
            return
        try:
            self._since = _CONTENT.validate_json(self._path.read_bytes())
        except (OSError, ValidationError):
            raise SettingsError(f"The file {self._path} cannot be read.", param="devices.file") from None
        self._stamp = stamp

    async def follow(self, interval_s: float) -> None:
        """Look for ever. A file that cannot be read changes nothing."""
        while True:
            await self._clock.sleep(interval_s)
            with contextlib.suppress(SettingsError):
                self.look()

    def _write(self, since: dict[str, float]) -> None:
        half = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(orjson.dumps(since))
                file.flush()
                os.fsync(file.fileno())
            half.replace(self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                half.unlink()
            why = (error.strerror or "it cannot be written").lower()
            raise SettingsError(f"The file {self._path}: {why}.", param="devices.file") from None
        self._since = since
        status = self._path.stat()
        self._stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
