"""What a benchmark found on this machine, kept as one JSON file each below `$ISTHMUS_HOME/loadtests/bench`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from shared.settings import home

DONE, FAILED, MISSING = "done", "failed", "not possible here"


@dataclass(frozen=True, slots=True)
class Finding:
    """One benchmark, as it went last. `began` is UTC in ISO format, `load` the machine's load averages at the end;
    `reason` says why there are no figures, `quick` that it was cut short."""

    name: str
    began: str
    took_s: float
    state: str
    reason: str | None
    printed: str
    quick: bool
    load: tuple[float, ...]
    version: str


def keep(finding: Finding) -> None:
    """Replace what was kept of this benchmark."""
    path = _file(finding.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(".half")
    half.write_bytes(orjson.dumps(asdict(finding), option=orjson.OPT_INDENT_2))
    half.replace(path)


def kept(name: str) -> Finding | None:
    """What was kept of a benchmark; None where nothing was, or what is there was written by another release."""
    try:
        value = orjson.loads(_file(name).read_bytes())
        return Finding(**value | {"load": tuple(value["load"])})
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return None


def _file(name: str) -> Path:
    return home() / "loadtests" / "bench" / f"{name}.json"
