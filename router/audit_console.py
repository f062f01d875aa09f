"""What `isthmus router audit` and `replay` print."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from router.audit.chain import is_whole
from router.audit.files import find_line, find_policy
from router.audit.query import MALFORMED, Wanted, as_csv, class_found
from router.audit.replay import replay
from router.audit.verification import Verification, lines_of, verify
from router.console import ms, or_dash, print_json, table_of
from router.policy.words import explain
from shared.errors import IsthmusError, NotFound, SettingsError


def show_records(records: list[dict[str, Any]], *, as_json: bool, empty: str = "The log is empty.") -> None:
    """One row a record."""
    if as_json:
        for record in records:
            print_json(record)
        return
    table = table_of("seq", "time", "class", "tier", "outcome", "status", "ttft", "total", "reason")
    for each in records:
        table.add_row(*_row(each))
    Console().print(table if records else empty)


def _row(record: dict[str, Any]) -> tuple[str, ...]:
    try:
        return (str(record["seq"]), _time(record), *_cells(record))
    except MALFORMED:
        return (str(record["seq"]), "-", "-", "-", "malformed", "-", "-", "-", "not as a router writes it: verify")


def _cells(record: dict[str, Any]) -> tuple[str, ...]:
    kind = record.get("kind")
    if kind == "policy":
        return ("-", "-", "policy", "-", "-", "-", record["digest"][:19])
    if kind == "feedback":
        said = f"{record['class_found']} should be {record['class_said']}: {record['about']}"
        return ("-", "-", "feedback", "-", "-", "-", said)
    if kind == "denied":
        times = f" ({record['times']} more)" if "times" in record else ""
        return ("-", "-", "denied", str(record["status"]), "-", "-", f"{record['code']} at {record['endpoint']}{times}")
    if kind != "request":
        return ("-", "-", str(kind), "-", "-", "-", str(record.get("cause", "")))
    attempts, decision = record["attempts"], record["decision"] or {}
    rule = f" ({decision['rule']})" if decision.get("rule") else ""
    return (
        or_dash(record["class"]),
        attempts[-1]["tier"] if attempts else "-",
        record["outcome"],
        or_dash(record["status"]),
        ms(record["ttft_ms"]),
        ms(record["total_ms"]),
        or_dash(decision.get("reason") or record["code"]) + rule,
    )


def show_verification(result: Verification, *, as_json: bool) -> None:
    """The verdict over the log."""
    if as_json:
        print_json(
            {
                "records": result.records,
                "files": result.files,
                "fault": result.fault,
                "first_broken": result.first_broken,
                "decision_id": result.decision_id,
            }
        )
    elif result.fault is None:
        Console().print(f"{result.records} records in {result.files} files: unbroken.")
    else:
        named = f" It bears the id {result.decision_id}." if result.decision_id else ""
        Console().print(f"Broken after {result.records} good records: {result.fault}.{named}", markup=False)


def show_replay(folder: Path, key: bytes, decision_id: str, *, as_json: bool) -> int:
    """The recorded decision, decided again; 1 where the answer is another.

    Raises:
        NotFound: the log holds no such request, or no longer its policy.
        IsthmusError: the record was changed.
    """
    line = find_line(folder, decision_id)
    if line is None:
        raise NotFound("The audit log holds no such request.", param="id")
    if not is_whole(line, key):
        raise IsthmusError(
            "This record was changed after it was written, or another key wrote it; see isthmus router audit verify."
        )
    record = orjson.loads(line)
    digest = (record["decision"] or {}).get("policy", "")
    policy = find_policy(folder, digest, key) if digest else {}
    if policy is None:
        raise NotFound(f"The audit log no longer holds the policy {digest} as it was written.", param="id")
    again = replay(record, policy)
    if as_json:
        print_json(
            {
                "decision_id": record["decision_id"],
                "seq": record["seq"],
                "same": not again.differences,
                "differences": again.differences,
                "left_out": again.left_out,
                "decision": record["decision"],
                "words": explain(again.decision, class_found(record)),
            }
        )
        return 1 if again.differences else 0
    console = Console()
    console.print(
        f"{record['decision_id']}, {_time(record)}, record {record['seq']}, policy {digest[:19]}…", soft_wrap=True
    )
    for sentence in explain(again.decision, class_found(record)):
        console.print(f"  {sentence}", markup=False, highlight=False)
    if again.left_out:
        console.print(f"  The record holds the first backends of the fleet; {again.left_out} more were left out.")
    if again.differences:
        console.print(f"Decided again, it comes out differently: {', '.join(again.differences)}.")
        return 1
    console.print("Decided again, the answer is the same.")
    return 0


def export(folder: Path, key: bytes, output: Path, wanted: Wanted, *, as_table: bool, as_json: bool) -> int:
    """Write the records to `output`; 1 where the log is broken, and nothing is written.

    Raises:
        SettingsError: the file cannot be written, or is there already.
    """
    result = verify(folder, key)
    if result.fault is not None:
        show_verification(result, as_json=as_json)
        return 1
    lines = lines_of(folder, key, result.records)
    if as_table:
        requests = (orjson.loads(line) for line in lines)
        chosen: Iterator[str] = as_csv(record for record in requests if wanted.accepts(record))
    else:
        chosen = (line.decode() for line in lines if _is_between(orjson.loads(line), wanted))
    try:
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise _unwritable(output, error) from None
    # The names of the columns are no record.
    written = _write(handle, output, chosen) - as_table
    if as_json:
        print_json({"records": written, "output": str(output), "format": "csv" if as_table else "jsonl"})
    else:
        Console().print(f"{written} records written to {output}.", markup=False)
    return 0


def _write(handle: int, output: Path, texts: Iterator[str]) -> int:
    """How many texts were written; after a fault there is no file."""
    written = 0
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            for text in texts:
                file.write(text)
                written += 1
    except OSError as error:
        output.unlink(missing_ok=True)
        raise _unwritable(output, error) from None
    return written


def _unwritable(output: Path, error: OSError) -> SettingsError:
    reason = os.strerror(error.errno or 0).lower()
    return SettingsError(f"The file {output} cannot be written: {reason}.", param="output")


def _is_between(record: dict[str, Any], wanted: Wanted) -> bool:
    at = record.get("at")
    if not isinstance(at, int | float):
        return wanted.since_s is None and wanted.until_s is None
    return (wanted.since_s is None or at >= wanted.since_s) and (wanted.until_s is None or at < wanted.until_s)


def _time(record: dict[str, Any]) -> str:
    at = record.get("at")
    return "-" if at is None else datetime.fromtimestamp(at).astimezone().strftime("%m-%d %H:%M:%S")
