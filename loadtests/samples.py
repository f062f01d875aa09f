"""One raw sample a request, kept as a line of JSON, and read back as columns: percentiles come from these alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from loadtests.streaming import Outcome
from shared.errors import IsthmusError

MEASURES = ("ttft_ms", "content_ms", "total_ms", "tpot_ms", "longest_gap_ms")


@dataclass(frozen=True, slots=True)
class Sample:
    """One request of a run. `at_s` is when it was sent, in seconds of the run; in an open loop, when it was due, and
    `late_ms` says by how much it was sent later. Times count from `at_s`."""

    number: int
    kind: str
    at_s: float
    outcome: Outcome
    late_ms: float | None = None
    canary: bool = False
    leaked_bytes: int = 0
    """Bytes of the canary in a prompt that the cloud answered."""
    worker: int = 0


def to_dict(sample: Sample) -> dict[str, Any]:
    """The sample as plain data; what is unset is left out."""
    outcome = sample.outcome
    values: dict[str, Any] = {
        "number": sample.number,
        "kind": sample.kind,
        "at_s": round(sample.at_s, 4),
        "late_ms": _rounded(sample.late_ms),
        "canary": sample.canary or None,
        "leaked_bytes": sample.leaked_bytes or None,
        "worker": sample.worker or None,
        "failure": None if outcome.failure is None else outcome.label,
        "status": outcome.status,
        "code": outcome.code,
        "tier": outcome.tier,
        "prompt_tokens": outcome.prompt_tokens,
        "output_tokens": outcome.output_tokens,
        "stalls": outcome.stalls or None,
        "told_to_wait": outcome.told_to_wait or None,
        **{measure: _rounded(getattr(outcome, measure)) for measure in MEASURES},
    }
    return {name: value for name, value in values.items() if value is not None}


def to_lines(rows: Iterable[dict[str, Any]]) -> bytes:
    """Rows as lines of JSON."""
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def read_samples(path: Path) -> list[dict[str, Any]]:
    """All rows of a file that `to_lines` wrote.

    Raises:
        IsthmusError: the file cannot be read, or a line of it is no sample.
    """
    try:
        return list(_rows(path))
    except OSError:
        raise IsthmusError(f"The samples {path} cannot be read.") from None


def began_file(samples: Path) -> Path:
    """Where the moment of the start is written once it is known, in seconds of this machine's monotonic clock."""
    return samples.with_suffix(".began")


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for place, line in enumerate(lines, start=1):
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError:
                row = None
            if not isinstance(row, dict) or not isinstance(row.get("at_s"), int | float) or "total_ms" not in row:
                raise IsthmusError(f"Line {place} of {path} is no sample.")
            yield row


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
