"""Checks a whole audit log: that no record was changed, dropped, inserted, reordered or cut off; names the first that
is broken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from router.audit import chain
from router.audit.chain import Fault, Link
from router.audit.files import HEAD, START, files_of, number_of


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a check over all files. `fault` is None for an unbroken log; `first_broken` is the number of the
    record at fault, `decision_id` the one that it bears, as far as that is known."""

    records: int
    files: int
    fault: str | None
    first_broken: int | None = None
    decision_id: str | None = None


def verify(folder: Path, key: bytes) -> Verification:
    """Follow the chain through all files and compare its ends with the two seals."""
    files = files_of(folder)
    try:
        first, link = _start_of(folder, key)
        head = _sealed(folder / HEAD, HEAD, key)
    except _BrokenSeal as broken:
        return Verification(0, len(files), broken.words)
    files = [path for path in files if number_of(path) >= first]
    if head is None:
        there_is = "the head is missing: nobody can say where the log ends" if files else f"there is no log in {folder}"
        return Verification(0, len(files), there_is)
    start, seen = link.seq, _Seen(Link(int(head["seq"]), str(head["mac"])))
    seen.reached = link == seen.head
    for path in files:
        with path.open("rb") as file:
            link, fault = chain.follow(file, link, key, seen)
        if fault is not None:
            return _broken(link.seq - start, len(files), path, fault)
    if not seen.reached:
        cut = f"the end is missing: records {link.seq + 1} to {seen.head.seq} were cut off"
        return Verification(link.seq - start, len(files), cut, link.seq + 1)
    if seen.gap is not None:
        at, cause = seen.gap
        noted = f"{cause} when a router started, as it noted in record {at}"
        return Verification(link.seq - start, len(files), noted, at)
    return Verification(link.seq - start, len(files), None)


def lines_of(folder: Path, key: bytes, records: int) -> Iterator[bytes]:
    """The lines of a log of which a check has found so many `records` to be good. What was written since is left
    out."""
    first, _ = _start_of(folder, key)
    files = [path for path in files_of(folder) if number_of(path) >= first]
    return islice((line for path in files for line in _lines_in(path)), records)


def _lines_in(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


class _Seen:
    """Watches good records go by: whether the head was reached, and the first gap that a router noted."""

    def __init__(self, head: Link) -> None:
        self.head = head
        self.reached = False
        self.gap: tuple[int, str] | None = None

    def __call__(self, record: Mapping[str, Any]) -> None:
        if record["seq"] == self.head.seq and record["mac"] == self.head.mac:
            self.reached = True
        if record.get("kind") == "gap" and self.gap is None:
            self.gap = (record["seq"], str(record["cause"]))


class _BrokenSeal(Exception):
    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


def _start_of(folder: Path, key: bytes) -> tuple[int, Link]:
    start = _sealed(folder / START, START, key)
    return (0, Link()) if start is None else (int(start["file"]), Link(int(start["seq"]), str(start["mac"])))


def _sealed(path: Path, name: str, key: bytes) -> dict[str, Any] | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    values = chain.unseal(name, data, key)
    if values is None:
        raise _BrokenSeal(f"the file {name} was changed, or the key is another")
    return values


def _broken(records: int, files: int, path: Path, fault: Fault) -> Verification:
    named = f"record {fault.expected_seq}"
    if fault.seq is not None and fault.seq != fault.expected_seq:
        named = f"record {fault.seq} stands where {fault.expected_seq} should"
    words = f"{path.name}, line {fault.line} ({named}): {fault.reason}"
    return Verification(records, files, words, fault.expected_seq, fault.decision_id)
