"""Keeps audit lines in files of bounded size, one writer at a time, and reads them back."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from router.audit import chain
from router.audit.chain import Link
from shared.errors import SettingsError

_KEY_BYTES = 32
_HEAD = "head"
_LOCK = "lock"
_READ_BACK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a check over all files. `fault` is None for an unbroken log."""

    records: int
    files: int
    fault: str | None


def load_key(path: Path, *, create: bool) -> bytes:
    """The key at `path` (32 bytes), made on first use if `create`.

    Raises:
        SettingsError: it cannot be read or made.
    """
    try:
        if create and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(FileExistsError):
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(handle, "wb") as file:
                    file.write(secrets.token_bytes(_KEY_BYTES))
        key = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"The audit key {path}: {_words(error)}.", param="router.audit.key_file") from None
    if len(key) < _KEY_BYTES:
        raise SettingsError(f"The audit key {path} is shorter than {_KEY_BYTES} bytes.", param="router.audit.key_file")
    return key


class AuditStorage:
    """The files `audit-00000001.jsonl`, … of one folder, open for appending."""

    def __init__(self, folder: Path, key: bytes, *, file_bytes: int) -> None:
        """Raises: SettingsError: the folder cannot be written, or another router writes there."""
        self._folder = folder
        self._key = key
        self._file_bytes = file_bytes
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise SettingsError(f"The audit folder {folder}: {_words(error)}.", param="router.audit.dir") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise SettingsError(
                f"Another router writes to the audit folder {folder}.", param="router.audit.dir"
            ) from None
        self._number, self._link = self._recover()

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write `records` to the disk, all or, after an OSError, none."""
        link, lines = self._link, []
        for record in records:
            line, link = chain.append(record, link, self._key)
            lines.append(line)
        path = self._path(self._number)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(handle).st_size
            try:
                _write_all(handle, b"".join(lines))
                os.fsync(handle)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(handle, size)
                raise
            size = os.fstat(handle).st_size
        finally:
            os.close(handle)
        self._link = link
        if size >= self._file_bytes:
            self._number += 1
        with contextlib.suppress(OSError):  # a head that lags is a head that a shorter log still has to reach
            _replace(self._folder / _HEAD, orjson.dumps({"seq": link.seq, "mac": link.mac}))

    def close(self) -> None:
        os.close(self._lock)

    def _path(self, number: int) -> Path:
        return self._folder / f"audit-{number:08}.jsonl"

    def _recover(self) -> tuple[int, Link]:
        """Number of the file to write and end of the chain; a line torn by a crash is removed."""
        files = files_of(self._folder)
        for path in reversed(files):
            with path.open("r+b") as file:
                size = file.seek(0, os.SEEK_END)
                start = max(0, size - _READ_BACK_BYTES)
                file.seek(start)
                tail = file.read()
                whole = tail.rfind(b"\n") + 1
                if whole < len(tail):
                    file.truncate(start + whole)
            lines = tail[:whole].splitlines()
            if lines and (link := chain.end_of(lines[-1])) is not None:
                return _number_of(files[-1]), link
        return (_number_of(files[-1]) if files else 1), Link()


def files_of(folder: Path) -> list[Path]:
    """The log's files, oldest first."""
    return sorted(folder.glob("audit-[0-9]*.jsonl"))


def tail(folder: Path, count: int) -> list[dict[str, Any]]:
    """The last `count` records, oldest first."""
    found: list[dict[str, Any]] = []
    for path in reversed(files_of(folder)):
        lines = path.read_bytes().splitlines()[-(count - len(found)) :] if len(found) < count else []
        found = [orjson.loads(line) for line in lines if chain.end_of(line) is not None] + found
    return found[-count:]


def verify(folder: Path, key: bytes) -> Verification:
    """Follow the chain through all files and compare its end with the head."""
    link = Link()
    files = files_of(folder)
    head = _Head(folder)
    for path in files:
        with path.open("rb") as file:
            link, fault = chain.follow(head.watch(file), link, key)
        if fault is not None:
            return Verification(link.seq, len(files), f"{path.name}, line {fault.line}: {fault.reason}")
    if not head.passed:
        return Verification(link.seq, len(files), "the end of the log is missing")
    return Verification(link.seq, len(files), None)


class _Head:
    """The head file, and whether the lines that went by reached it."""

    def __init__(self, folder: Path) -> None:
        self._link = _head_of(folder)
        self.passed = self._link is None

    def watch(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        for line in lines:
            if not self.passed and chain.end_of(line) == self._link:
                self.passed = True
            yield line


def _head_of(folder: Path) -> Link | None:
    try:
        return chain.end_of((folder / _HEAD).read_bytes())
    except OSError:
        return None


def _number_of(path: Path) -> int:
    return int(path.stem.removeprefix("audit-"))


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _replace(path: Path, data: bytes) -> None:
    staged = path.with_suffix(".new")
    staged.write_bytes(data)
    staged.replace(path)


def _words(error: OSError) -> str:
    return os.strerror(error.errno or 0).lower()
