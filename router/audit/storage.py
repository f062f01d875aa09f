"""Keeps audit lines in files of bounded size, one writer at a time; old files go when the log is as large as it may be.

Each file begins with the policy in force, so that its records can be replayed when those before it are gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from router.audit import chain
from router.audit.chain import Link
from router.audit.files import HEAD, LOCK, START, files_of, number_of, path_of, words_of
from shared.errors import SettingsError

_READ_BACK_BYTES = 4 * 1024 * 1024


class Sync(StrEnum):
    """When lines are forced to the disk."""

    ALWAYS = "always"
    """Before a write counts as done: nothing is lost with the power."""
    SECOND = "second"
    """Once a second: up to a second of records is lost with the power, none with the process."""
    NEVER = "never"
    """When the operating system sees fit."""


class AuditStorage:
    """The files `audit-00000001.jsonl`, … of one folder, open for appending."""

    def __init__(
        self, folder: Path, key: bytes, *, file_bytes: int, total_bytes: int | None = None, sync: Sync = Sync.ALWAYS
    ) -> None:
        """`total_bytes` bounds all files together (None: no bound); the newest file is always kept.

        Raises:
            SettingsError: the folder cannot be written, or another router writes there.
        """
        self._folder = folder
        self._key = key
        self._file_bytes = file_bytes
        self._total_bytes = total_bytes
        self._sync = sync
        self._dirty: set[Path] = set()
        self._policy: Mapping[str, Any] | None = None
        self._notes: list[Mapping[str, Any]] = []
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise SettingsError(f"The audit folder {folder}: {words_of(error)}.", param="router.audit.dir") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise SettingsError(
                f"Another router writes to the audit folder {folder}.", param="router.audit.dir"
            ) from None
        try:
            self._number, self._link = self._recover()
        except OSError as error:
            os.close(self._lock)
            raise SettingsError(f"The audit folder {folder}: {words_of(error)}.", param="router.audit.dir") from None

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write `records`, all or, after an OSError, none."""
        path = path_of(self._folder, self._number)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(handle).st_size
            link, lines = self._link, []
            for record in self._with_notes(records, begins_file=size == 0):
                line, link = chain.append(record, link, self._key)
                lines.append(line)
            try:
                _write_all(handle, b"".join(lines))
                if self._sync is Sync.ALWAYS:
                    os.fsync(handle)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(handle, size)
                raise
            if size == 0 and self._sync is Sync.ALWAYS:
                self._sync_folder()
            size = os.fstat(handle).st_size
        finally:
            os.close(handle)
        self._link, self._notes = link, []
        self._policy = next((each for each in reversed(records) if each.get("kind") == "policy"), self._policy)
        self._dirty.add(path)
        with contextlib.suppress(OSError):  # a head that lags is a head that a shorter log still has to reach
            _replace(self._folder / HEAD, chain.seal(HEAD, link, self._key), forced=self._sync is Sync.ALWAYS)
        if size >= self._file_bytes:
            self._number += 1
            with contextlib.suppress(OSError):  # tried again with the next file
                self._prune()

    def sync(self) -> None:
        """Force to the disk what was written since the last time."""
        while self._dirty:
            path = self._dirty.pop()
            with contextlib.suppress(FileNotFoundError):
                handle = os.open(path, os.O_WRONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)

    def close(self) -> None:
        """Let another router write here."""
        if self._sync is Sync.SECOND:
            with contextlib.suppress(OSError):
                self.sync()
        os.close(self._lock)

    def _with_notes(self, records: Sequence[Mapping[str, Any]], *, begins_file: bool) -> list[Mapping[str, Any]]:
        """The records, after the policy where they begin a file, and after what the storage itself has to say."""
        first = []
        if begins_file and self._policy is not None and records[0].get("kind") != "policy":
            first.append(self._policy)
        return [*first, *self._notes, *records]

    def _prune(self) -> None:
        """Let the oldest files go while the log is too large; the chain says that they did, and where it begins now."""
        files = files_of(self._folder)
        total = sum(path.stat().st_size for path in files)
        gone: list[Path] = []
        while self._total_bytes is not None and total > self._total_bytes and len(files) > 1:
            total -= files[0].stat().st_size
            gone.append(files.pop(0))
        if not gone:
            return
        link = _end_of_file(gone[-1])
        if link is None:  # what verify has to show is not removed
            return
        _replace(self._folder / START, chain.seal(START, link, self._key, file=number_of(files[0])))
        for path in gone:
            self._dirty.discard(path)
            path.unlink()
        self._notes.append({"kind": "pruned", "files": [path.name for path in gone], "through_seq": link.seq})

    def _recover(self) -> tuple[int, Link]:
        """Number of the file to write and end of the chain. A line torn by a crash is removed, and the chain says so
        where more than that is missing."""
        files = self._without_leftovers()
        link = self._start_link()
        for path in reversed(files):
            _remove_torn_line(path)
            found = _end_of_file(path)
            if found is not None:
                link = found
                break
        self._note_missing_end(link, is_new=not files)
        _replace(self._folder / HEAD, chain.seal(HEAD, link, self._key))
        return (number_of(files[-1]) if files else max(1, self._first_number())), link

    def _note_missing_end(self, link: Link, *, is_new: bool) -> None:
        try:
            data = (self._folder / HEAD).read_bytes()
        except FileNotFoundError:
            if not is_new:
                self._notes.append({"kind": "gap", "cause": "the head was missing", "after_seq": link.seq})
            return
        head = chain.unseal(HEAD, data, self._key)
        if head is None:
            self._notes.append({"kind": "gap", "cause": "the head was changed", "after_seq": link.seq})
        elif head["seq"] > link.seq:
            cause = "the end of the log was missing"
            self._notes.append({"kind": "gap", "cause": cause, "after_seq": link.seq, "through_seq": head["seq"]})

    def _without_leftovers(self) -> list[Path]:
        """The files from the start on; older ones were about to be removed when a router ended."""
        files, first = files_of(self._folder), self._first_number()
        for path in files:
            if number_of(path) < first:
                path.unlink()
        return [path for path in files if number_of(path) >= first]

    def _start(self) -> dict[str, Any] | None:
        try:
            return chain.unseal(START, (self._folder / START).read_bytes(), self._key)
        except FileNotFoundError:
            return None

    def _first_number(self) -> int:
        start = self._start()
        return 0 if start is None else int(start["file"])

    def _start_link(self) -> Link:
        start = self._start()
        return Link() if start is None else Link(int(start["seq"]), str(start["mac"]))

    def _sync_folder(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _remove_torn_line(path: Path) -> None:
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - _READ_BACK_BYTES)
        file.seek(start)
        end = file.read()
        whole = end.rfind(b"\n") + 1
        if whole < len(end):
            file.truncate(start + whole)


def _end_of_file(path: Path) -> Link | None:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _READ_BACK_BYTES))
        lines = file.read().splitlines()
    return chain.end_of(lines[-1]) if lines else None


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _replace(path: Path, data: bytes, *, forced: bool = False) -> None:
    """Exchange a small file as a whole; `forced` waits for the disk, so that after a loss of power it is not an older
    one, which a log without its last records would satisfy."""
    staged = path.with_suffix(".new")
    with staged.open("wb") as file:
        file.write(data)
        if forced:
            file.flush()
            os.fsync(file.fileno())
    staged.replace(path)
