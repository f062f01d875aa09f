"""The audit log shows every later change, survives a crash, and fails closed for what must be recorded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from router.audit.files import files_of, load_key, tail
from router.audit.log import AuditLog
from router.audit.storage import AuditStorage
from router.audit.verification import verify
from shared.errors import SettingsError
from shared.privacy import PrivacyClass
from shared.testing.clock import ManualClock

KEY = b"k" * 32


def written(folder: Path, count: int = 6, *, file_bytes: int = 10**6) -> AuditStorage:
    storage = AuditStorage(folder, KEY, file_bytes=file_bytes)
    for n in range(count):
        storage.append([{"n": n}])
    return storage


def test_an_unbroken_log_verifies(tmp_path: Path) -> None:
    written(tmp_path, 50, file_bytes=1500).close()
    result = verify(tmp_path, KEY)
    assert result.fault is None and result.records == 50 and result.files > 3
    assert [r["n"] for r in tail(tmp_path, 7)] == list(range(43, 50))


TAMPERINGS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "changed": lambda lines: [lines[0].replace(b'"n":0', b'"n":9'), *lines[1:]],
    "dropped": lambda lines: [*lines[:2], *lines[3:]],
    "first dropped": lambda lines: lines[1:],
    "reordered": lambda lines: [lines[1], lines[0], *lines[2:]],
    "repeated": lambda lines: [*lines[:3], lines[2], *lines[3:]],
    "shortened": lambda lines: lines[:-2],
    "emptied": lambda lines: [],
    "torn": lambda lines: [*lines[:-1], lines[-1][:-10]],
    "not json": lambda lines: [*lines[:3], b"oops\n", *lines[3:]],
}


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_every_tampering_shows(tmp_path: Path, tampering: str) -> None:
    written(tmp_path).close()
    [path] = files_of(tmp_path)
    path.write_bytes(b"".join(TAMPERINGS[tampering](path.read_bytes().splitlines(keepends=True))))
    assert verify(tmp_path, KEY).fault is not None


def test_a_forger_without_the_key_is_found(tmp_path: Path) -> None:
    forged = AuditStorage(tmp_path, b"x" * 32, file_bytes=10**6)
    forged.append([{"n": 0}])
    forged.close()
    assert verify(tmp_path, KEY).fault is not None


def test_the_chain_goes_on_after_a_crash_in_the_middle_of_a_line(tmp_path: Path) -> None:
    written(tmp_path).close()
    [path] = files_of(tmp_path)
    path.write_bytes(path.read_bytes() + b'{"seq":7,"prev":"ab')
    written(tmp_path, 1).close()
    result = verify(tmp_path, KEY)
    assert result.fault is None and result.records == 7


def test_two_writers_are_refused(tmp_path: Path) -> None:
    storage = written(tmp_path, 1)
    with pytest.raises(SettingsError, match="Another router"):
        AuditStorage(tmp_path, KEY, file_bytes=10**6)
    storage.close()


def test_the_key_is_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "audit.key"
    first = load_key(path, create=True)
    assert load_key(path, create=True) == first and len(first) == 32
    assert path.stat().st_mode & 0o077 == 0
    path.write_bytes(b"short")
    with pytest.raises(SettingsError):
        load_key(path, create=True)
    with pytest.raises(SettingsError):
        load_key(tmp_path / "absent", create=False)


class FailingStorage:
    def __init__(self) -> None:
        self.failing = False
        self.kept: list[Mapping[str, Any]] = []

    def sync(self) -> None:
        """Nothing is held back."""

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        if self.failing:
            raise OSError(28, "no space")
        self.kept.extend(records)


async def test_a_failing_storage_closes_for_all_but_public(tmp_path: Path) -> None:
    storage, clock, lost = FailingStorage(), ManualClock(), []
    log = AuditLog(storage, KEY, clock, queue_records=5, on_loss=lambda: lost.append(1))
    loop = asyncio.create_task(log.run())
    try:
        await asyncio.sleep(0)
        log.record({"n": 0})
        await _advance(clock, lambda: len(storage.kept) == 1)
        assert all(log.can_record(each) for each in PrivacyClass)
        storage.failing = True
        for n in range(1, 9):
            log.record({"n": n})
        await _advance(clock, lambda: log.failing)
        assert len(lost) == 3, "the buffer is bounded, and what it cannot hold is counted"
        assert [each for each in PrivacyClass if log.can_record(each)] == [PrivacyClass.PUBLIC]
        storage.failing = False
        await _advance(clock, lambda: not log.failing)
        assert [r["n"] for r in storage.kept] == [0, 1, 2, 3, 4, 5]
        assert log.can_record(PrivacyClass.SECRET)
    finally:
        loop.cancel()


async def test_a_record_that_is_no_json_is_lost_alone_and_counted(tmp_path: Path) -> None:
    lost: list[int] = []
    log = AuditLog(written(tmp_path, 0), KEY, ManualClock(), queue_records=5, on_loss=lambda: lost.append(1))
    for value in (0, 2**70, 2):
        log.record({"n": value})
    await log.flush()
    log.record({"n": 3})
    await log.flush()
    assert [record["n"] for record in tail(tmp_path, 5)] == [0, 2, 3]
    assert (lost, log.failing, verify(tmp_path, KEY).fault) == ([1], False, None)


class SlowStorage(FailingStorage):
    """Takes what it is given once `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = threading.Event(), threading.Event()

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        self.begun.set()
        assert self.go.wait(30)
        super().append(records)


async def test_the_end_of_the_program_within_a_write_keeps_each_record_once() -> None:
    storage, clock = SlowStorage(), ManualClock()
    log = AuditLog(storage, KEY, clock, queue_records=5, on_loss=lambda: None)
    loop = asyncio.create_task(log.run())
    await asyncio.sleep(0)
    log.record({"n": 0})
    await _advance(clock, storage.begun.is_set)
    log.record({"n": 1})
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    flushing = asyncio.create_task(log.flush())
    await asyncio.sleep(0)
    storage.go.set()
    await flushing
    assert [record["n"] for record in storage.kept] == [0, 1]


async def test_a_flush_in_the_moment_a_write_is_over_goes_on_with_what_waits() -> None:
    """The end of a task reaches those who wait for it a turn of the loop later: one that asks just then may be neither
    served with the write that is over for ever, nor keep the loop from turning."""
    storage, clock = SlowStorage(), ManualClock()
    log = AuditLog(storage, KEY, clock, queue_records=5, on_loss=lambda: None)
    log.record({"n": 0})
    first = asyncio.create_task(log.flush())
    await _advance(clock, storage.begun.is_set)
    log.record({"n": 1})
    [writing] = [task for task in asyncio.all_tasks() if task not in (first, asyncio.current_task())]
    storage.go.set()
    while not writing.done():
        await asyncio.sleep(0)
    await log.flush()
    assert [record["n"] for record in storage.kept] == [0, 1]
    await first


def test_a_write_that_fails_leaves_the_chain_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = written(tmp_path, 2)

    def full(handle: int) -> None:
        raise OSError(28, "no space")

    with monkeypatch.context() as patched:
        patched.setattr("router.audit.storage.os.fsync", full)
        with pytest.raises(OSError, match="no space"):
            storage.append([{"n": 2}])
    storage.append([{"n": 2}])
    storage.close()
    assert verify(tmp_path, KEY).fault is None
    assert [orjson.loads(x)["n"] for x in files_of(tmp_path)[0].read_bytes().splitlines()] == [0, 1, 2]


async def _advance(clock: ManualClock, condition: Callable[[], bool]) -> None:
    """Turn the clock until `condition` holds; the writing thread needs real moments in between."""
    async with asyncio.timeout(5):
        while not condition():
            await clock.advance(0.1)
            await asyncio.sleep(0.005)
