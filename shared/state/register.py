"""A small document that people change rarely and routers read always, kept in one file.

The file is replaced as a whole under a lock, and read again whenever it changed, so that processes may share it. What
reads it for every request gives it a clock: it is then looked at once a second, and not by each of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from shared.clock import Clock
from shared.errors import SettingsError

_LOOK_MS = 1_000
"""How long `content` may be out of date where there is a clock: a revoked key is locked out within this time."""


class Document(Protocol):
    """A frozen dataclass whose `revision` grows with every change."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def revision(self) -> int: ...


D = TypeVar("D", bound=Document)


class Register(Protocol[D]):
    """Where one document is kept."""

    @property
    def content(self) -> D:
        """The document as it is known now."""

    async def update(self, change: Callable[[D], D]) -> D:
        """Apply `change` to the newest document and keep the result, which it returns. `change` may run twice.

        Raises:
            StateUnavailable: it cannot be agreed upon now. SettingsError: the file cannot be written.
        """

    async def refresh(self) -> None:
        """Learn what others changed."""


class FileRegister(Generic[D]):
    """One document in one file, for all processes that share it."""

    def __init__(self, path: Path, empty: D, *, setting: str, title: str, clock: Clock | None = None) -> None:
        """`title` names the document in errors. Without a `clock` every read of `content` looks at the file.

        Raises:
            SettingsError: what stands there is none.
        """
        self._path = path
        self._setting = setting
        self._title = title
        self._adapter: TypeAdapter[D] = TypeAdapter(type(empty))
        self._content = empty
        self._clock = clock
        self._due_ms = 0
        self._stamp: tuple[int, int, int] | None = None
        self._read()

    @property
    def content(self) -> D:
        if self._clock is None or self._clock.now_ms() >= self._due_ms:
            self._read()
        return self._content

    async def update(self, change: Callable[[D], D]) -> D:
        with self._locked():
            self._read()
            changed = change(self._content)
            return self._write(replace(changed, revision=self._content.revision + 1))

    async def refresh(self) -> None:
        self._read()

    def keep(self, document: D) -> None:
        """Write `document` as it is, unless a newer one stands there."""
        with self._locked():
            self._read()
            if document.revision > self._content.revision:
                self._write(document)

    def parsed(self, raw: bytes) -> D:
        """The document in `raw`. Raises SettingsError: there is none."""
        try:
            return self._adapter.validate_json(raw)
        except ValidationError:
            raise SettingsError(f"{self._title} cannot be read.", param=self._setting) from None

    def _read(self) -> None:
        self._look()
        # Only now: while the file cannot be read, every reader hears of it, and none goes by what it held before.
        if self._clock is not None:
            self._due_ms = self._clock.now_ms() + _LOOK_MS

    def _look(self) -> None:
        try:
            status = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp == self._stamp:
            return
        try:
            raw = self._path.read_bytes()
        except OSError:
            raise SettingsError(f"{self._title} in {self._path} cannot be read.", param=self._setting) from None
        self._content, self._stamp = self.parsed(raw), stamp

    def _write(self, document: D) -> D:
        half = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}")
        try:
            descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(written(document))
                file.flush()
                os.fsync(file.fileno())
            half.replace(self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                half.unlink()
            raise self._not_written(error) from None
        self._read()
        return document

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._path.with_name(f".{self._path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._not_written(error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _not_written(self, error: OSError) -> SettingsError:
        why = (error.strerror or "it cannot be written").lower()
        return SettingsError(f"{self._title} in {self._path}: {why}.", param=self._setting)


def written(document: Document) -> bytes:
    """The document as it is kept."""
    return orjson.dumps(asdict(document), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS, default=sorted)
