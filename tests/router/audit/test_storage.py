"""Files of a log: how they roll over, how old ones go, and what a router notes that finds some missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from router.audit.files import files_of, find_line, find_policy, newest_records, tail
from router.audit.storage import AuditStorage, Sync
from router.audit.verification import Verification, verify

KEY = b"k" * 32
POLICY = {"kind": "policy", "digest": "sha256:p", "policy": {"mode": "fastest"}}


def opened(folder: Path, *, file_bytes: int = 2_000, **more: Any) -> AuditStorage:
    return AuditStorage(folder, KEY, file_bytes=file_bytes, **more)


def write(storage: AuditStorage, count: int, *, first: int = 0) -> None:
    for n in range(first, first + count):
        storage.append([{"kind": "request", "decision_id": f"dec-{n}", "request_id": f"req-{n}", "n": n}])


def filled(folder: Path, count: int = 40) -> list[Path]:
    storage = opened(folder)
    storage.append([POLICY])
    write(storage, count)
    storage.close()
    return files_of(folder)


def test_each_file_begins_with_the_policy_in_force(tmp_path: Path) -> None:
    files = filled(tmp_path)
    assert len(files) > 3
    for path in files:
        assert orjson.loads(path.read_bytes().splitlines()[0])["kind"] == "policy"
    assert verify(tmp_path, KEY).fault is None


def test_the_oldest_files_go_when_the_log_is_too_large_and_what_is_left_verifies(tmp_path: Path) -> None:
    storage = opened(tmp_path, total_bytes=8_000)
    storage.append([POLICY])
    write(storage, 120)
    storage.close()
    files = files_of(tmp_path)
    assert sum(path.stat().st_size for path in files) < 11_000
    assert files[0].name != "audit-00000001.jsonl"
    result = verify(tmp_path, KEY)
    assert result.fault is None and result.records < 120
    assert any(record["kind"] == "pruned" for record in newest_records(tmp_path))
    assert find_policy(tmp_path, "sha256:p") == {"mode": "fastest"}
    again = opened(tmp_path, total_bytes=8_000)
    write(again, 3, first=120)
    again.close()
    assert verify(tmp_path, KEY).fault is None


def test_files_that_were_about_to_go_when_the_router_ended_go_at_the_next_start(tmp_path: Path) -> None:
    storage = opened(tmp_path, total_bytes=8_000)
    write(storage, 20)
    oldest = files_of(tmp_path)[0].read_bytes()
    write(storage, 100, first=20)
    storage.close()
    (tmp_path / "audit-00000001.jsonl").write_bytes(oldest)
    assert verify(tmp_path, KEY).fault is None
    opened(tmp_path, total_bytes=8_000).close()
    assert not (tmp_path / "audit-00000001.jsonl").exists()


def _delete(index: int) -> Callable[[list[Path]], None]:
    return lambda files: files[index].unlink()


def _swap(files: list[Path]) -> None:
    first, second = files[1].read_bytes(), files[2].read_bytes()
    files[1].write_bytes(second)
    files[2].write_bytes(first)


def _cut(files: list[Path]) -> None:
    lines = files[-1].read_bytes().splitlines(keepends=True)
    files[-1].write_bytes(b"".join(lines[:-2]))


def _change(files: list[Path]) -> None:
    files[1].write_bytes(files[1].read_bytes().replace(b'"n":15', b'"n":16', 1))


DAMAGE: dict[str, tuple[Callable[[list[Path]], None], str]] = {
    "a changed record": (_change, "the record was changed"),
    "a deleted file": (_delete(1), "missing or out of order"),
    "the first file deleted": (_delete(0), "missing or out of order"),
    "the last file deleted": (_delete(-1), "were cut off"),
    "the last file renamed": (lambda files: files[-1].rename(files[-1].with_suffix(".bak")) and None, "were cut off"),
    "the last file emptied": (lambda files: files[-1].write_bytes(b"") and None, "were cut off"),
    "two files exchanged": (_swap, "missing or out of order"),
    "the last records cut off": (_cut, "were cut off"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_the_first_broken_record_is_named(tmp_path: Path, case: str) -> None:
    files = filled(tmp_path)
    before = {orjson.loads(line)["seq"]: line for path in files for line in path.read_bytes().splitlines()}
    damage, words = DAMAGE[case]
    damage(files)
    result = verify(tmp_path, KEY)
    left = [line for path in files_of(tmp_path) for line in path.read_bytes().splitlines()]
    expected = next(seq for seq, line in before.items() if left[seq - 1 : seq] != [line])
    assert result.first_broken == expected
    assert result.fault is not None and words in result.fault and str(expected) in result.fault
    assert result.records == expected - 1
    if case == "a changed record":
        assert result.decision_id == "dec-15"


@pytest.mark.parametrize("name", ["head", "start"])
def test_the_seals_cannot_be_forged(tmp_path: Path, name: str) -> None:
    """Whoever cuts records off cannot write a head to match, nor a start behind what he removed."""
    files = filled(tmp_path)
    kept = files[0].read_bytes().splitlines()[-1]
    end = orjson.loads(kept)
    forged = {"of": name, "seq": end["seq"], "mac": end["mac"], "seal": "0" * 64}
    (tmp_path / name).write_bytes(orjson.dumps({**forged, **({"file": 2} if name == "start" else {})}))
    result = verify(tmp_path, KEY)
    assert result.fault is not None and name in result.fault


def test_a_head_that_is_gone_is_a_fault_and_so_is_no_log(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "head").unlink()
    assert "head is missing" in str(verify(tmp_path, KEY).fault)
    assert "no log" in str(verify(tmp_path / "elsewhere", KEY).fault)


@pytest.mark.parametrize("damage", [_cut, _delete(-1), lambda files: (files[0].parent / "head").unlink()])
def test_a_router_that_finds_the_end_missing_says_so_for_ever(
    tmp_path: Path, damage: Callable[[list[Path]], None]
) -> None:
    """It goes on writing, and cannot be used to cover up what was removed before it started."""
    damage(filled(tmp_path))
    storage = opened(tmp_path)
    write(storage, 10, first=100)
    storage.close()
    result = verify(tmp_path, KEY)
    assert result.fault is not None and "as it noted in record" in result.fault
    assert tail(tmp_path, 1)[0]["n"] == 109


def test_an_empty_log_verifies(tmp_path: Path) -> None:
    opened(tmp_path).close()
    assert verify(tmp_path, KEY) == Verification(0, 0, None)


@pytest.mark.parametrize(("sync", "forced"), [(Sync.ALWAYS, 11), (Sync.SECOND, 1), (Sync.NEVER, 0)])
def test_when_lines_are_forced_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: Sync, forced: int
) -> None:
    """Each of five writes with its head, and the new folder entry; once for all of them; not at all."""
    calls: list[int] = []
    storage = opened(tmp_path, file_bytes=10**6, sync=sync)
    monkeypatch.setattr("router.audit.storage.os.fsync", calls.append)
    write(storage, 5)
    if sync is Sync.SECOND:
        assert calls == []
        storage.sync()
        storage.sync()
    storage.close()
    assert len(calls) == forced


def test_records_are_found_by_either_id_and_read_from_the_end(tmp_path: Path) -> None:
    filled(tmp_path)
    for wanted in ("dec-7", "req-7"):
        assert orjson.loads(find_line(tmp_path, wanted) or b"{}")["n"] == 7
    assert find_line(tmp_path, "dec-700") is None
    numbers = [record["seq"] for record in newest_records(tmp_path)]
    assert numbers == sorted(numbers, reverse=True) and numbers[-1] == 1


def test_lines_longer_than_a_block_are_read_whole(tmp_path: Path) -> None:
    storage = opened(tmp_path, file_bytes=10**9)
    for n in range(4):
        storage.append([{"kind": "request", "n": n, "filler": "é" * 200_000}])
    storage.close()
    assert [record["n"] for record in newest_records(tmp_path)] == [3, 2, 1, 0]
