"""Finds records by what they say, newest first, and writes them out for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from shared.privacy import PrivacyClass

COLUMNS = (
    "seq",
    "at",
    "decision_id",
    "request_id",
    "trace_id",
    "key",
    "model",
    "class",
    "action",
    "rule",
    "reason",
    "tier",
    "backend",
    "attempts",
    "outcome",
    "status",
    "code",
    "kinds",
    "ttft_ms",
    "total_ms",
    "body",
    "policy",
)
"""Columns of a table of requests."""
MALFORMED = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""What reading a record raises that no router wrote."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Conditions on requests; all that are given must hold. Times are Unix seconds, `until` not included."""

    privacy_class: PrivacyClass | None = None
    tier: str | None = None
    backend: str | None = None
    outcome: str | None = None
    status: int | None = None
    rule: str | None = None
    key: str | None = None
    model: str | None = None
    entity: str | None = None
    trace_id: str | None = None
    request_id: str | None = None
    since_s: float | None = None
    until_s: float | None = None

    def accepts(self, record: Mapping[str, Any]) -> bool:
        """Whether a record is one that is wanted."""
        if record.get("kind") != "request":
            return False
        try:
            return self._holds_for(record, row_of(record))
        except MALFORMED:  # of a line that was changed, which is for `verify` to name
            return False

    def _holds_for(self, record: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
        wanted = {
            "class": self.privacy_class,
            "tier": self.tier,
            "backend": self.backend,
            "outcome": self.outcome,
            "status": self.status,
            "rule": self.rule,
            "key": self.key,
            "model": self.model,
            "trace_id": self.trace_id,
            "request_id": self.request_id,
        }
        return (
            all(value is None or row[name] == value for name, value in wanted.items())
            and (self.entity is None or self.entity in row["kinds"].split())
            and (self.since_s is None or record["at"] >= self.since_s)
            and (self.until_s is None or record["at"] < self.until_s)
        )


def select(records: Iterable[dict[str, Any]], wanted: Wanted, limit: int | None) -> Iterator[dict[str, Any]]:
    """The records that are wanted, in their order, at most `limit` of them."""
    return islice((record for record in records if wanted.accepts(record)), limit)


def row_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """One request as a flat row."""
    decision, attempts = record.get("decision") or {}, record.get("attempts") or []
    last = attempts[-1] if attempts else {}
    nested = {
        "action": decision.get("action"),
        "rule": decision.get("rule"),
        "reason": decision.get("reason"),
        "policy": decision.get("policy"),
        "tier": last.get("tier"),
        "backend": last.get("backend"),
        "attempts": len(attempts),
        "kinds": " ".join(sorted({entity["kind"] for entity in record.get("entities") or ()})),
    }
    return {name: nested[name] if name in nested else record.get(name) for name in COLUMNS}


def as_csv(records: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The rows as lines of CSV, names first. A text that a spreadsheet would take for a formula is set off."""
    for values in (COLUMNS, *(row_of(record).values() for record in records)):
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow([_inert(value) for value in values])
        yield line.getvalue()


def _inert(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def class_found(record: Mapping[str, Any]) -> PrivacyClass | None:
    """What the scanner concluded of a recorded request."""
    found = record.get("class_found")
    return None if found is None else PrivacyClass(found)
