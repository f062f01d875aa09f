"""The files of an audit log: their names, their key, and reading them from either end."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from router.audit import chain
from shared.errors import SettingsError

HEAD, START, LOCK = "head", "start", "lock"
_KEY_BYTES = 32
_BLOCK_BYTES = 256 * 1024


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
        raise SettingsError(f"The audit key {path}: {words_of(error)}.", param="router.audit.key_file") from None
    if len(key) < _KEY_BYTES:
        raise SettingsError(f"The audit key {path} is shorter than {_KEY_BYTES} bytes.", param="router.audit.key_file")
    return key


def path_of(folder: Path, number: int) -> Path:
    """The file of that number."""
    return folder / f"audit-{number:08}.jsonl"


def number_of(path: Path) -> int:
    """The number of a file."""
    return int(path.stem.removeprefix("audit-"))


def files_of(folder: Path) -> list[Path]:
    """The log's files, oldest first."""
    return sorted(folder.glob("audit-" + "[0-9]" * 8 + ".jsonl"))


def newest_lines(folder: Path) -> Iterator[bytes]:
    """All whole lines without their newline, newest first."""
    for path in reversed(files_of(folder)):
        yield from _lines_backwards(path)


def newest_records(folder: Path) -> Iterator[dict[str, Any]]:
    """All records, newest first; what is no record is passed over, as `verify` is there to find it."""
    for line in newest_lines(folder):
        record = chain.record_of(line)
        if record is not None:
            yield record


def tail(folder: Path, count: int, kind: str | None = None) -> list[dict[str, Any]]:
    """The last `count` records (of one kind), oldest first."""
    found: list[dict[str, Any]] = []
    for record in newest_records(folder):
        if len(found) == count:
            break
        if kind is None or record.get("kind") == kind:
            found.append(record)
    return found[::-1]


def find_line(folder: Path, decision_id: str) -> bytes | None:
    """The line of the request with that decision id, or that request id, even if it is torn; None where there is
    none."""
    try:
        wanted = orjson.dumps(decision_id)
    except TypeError:  # half a surrogate pair: no id has one
        return None
    keys = (b'"decision_id":' + wanted, b'"request_id":' + wanted)
    for line in newest_lines(folder):
        if (keys[0] in line or keys[1] in line) and b'"kind":"request"' in line:
            record = chain.record_of(line)
            if record is None or decision_id in (record.get("decision_id"), record.get("request_id")):
                return line
    return None


def find_policy(folder: Path, digest: str, key: bytes | None = None) -> dict[str, Any] | None:
    """The policy of that digest, as it was written down; None where the log does not hold it. With the `key` of the
    log, a record of it that was changed counts for nothing."""
    wanted = orjson.dumps(digest)
    for line in newest_lines(folder):
        if b'"kind":"policy"' in line and wanted in line and (key is None or chain.is_whole(line, key)):
            record = chain.record_of(line) or {}
            if record.get("digest") == digest and isinstance(record.get("policy"), dict):
                return dict(record["policy"])
    return None


def words_of(error: OSError) -> str:
    """What went wrong, for people."""
    return os.strerror(error.errno or 0).lower()


def _opened(path: Path) -> BinaryIO:
    """The file, or an empty one where a router let it go since it was listed."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        return io.BytesIO()


def _lines_backwards(path: Path) -> Iterator[bytes]:
    with _opened(path) as file:
        at = file.seek(0, os.SEEK_END)
        rest, is_end = b"", True
        while at > 0:
            size = min(_BLOCK_BYTES, at)
            at -= size
            file.seek(at)
            first, *lines = (file.read(size) + rest).split(b"\n")
            if is_end and lines:
                lines.pop()  # nothing, or a line that is being written
                is_end = False
            yield from reversed(lines)
            rest = first
        if rest and not is_end:
            yield rest
