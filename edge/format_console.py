"""What `isthmus edge inspect` prints, and where `convert` looks for checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge.console import print_facts, print_json
from edge.packages.formats.entry import Format, Inspection
from edge.packages.formats.files import opened_candidate
from edge.packages.formats.registry import format_of
from shared.errors import NotFound
from shared.settings import home


def show_inspection(path: Path, *, as_json: bool) -> None:
    """Format, runtime and facts of the package at `path`.

    Raises:
        NotFound: there is nothing.
        TrustError: it is broken, or of no known format.
    """
    if not path.exists():
        raise NotFound(f"{path} does not exist.", param="path")
    with opened_candidate(path) as files:
        found = format_of(files)
        inspection = found.inspect(files)
        size_bytes = sum(files.size_bytes(name) for name in files.names)
    row = _row(found, inspection, size_bytes)
    if as_json:
        print_json(row)
        return
    runtime = row.pop("runtime")
    state = "is here" if runtime["is_here"] else f"is not here: {runtime['remedy']}"
    served = "this agent serves it" if runtime["served_by_this_agent"] else "this agent has no engine for it"
    model = row.pop("model") or {}
    row |= {name: model[name] for name in ("architecture", "quantisation", "parameters") if name in model}
    details = {
        name: ", ".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in row.pop("details").items()
    }
    print_facts({**row, **details, "runtime": f"{runtime['name']} {state}; {served}"})


def _row(found: Format, inspection: Inspection, size_bytes: int) -> dict[str, Any]:
    return {
        "format": found.name,
        "size_bytes": size_bytes,
        "runtime": {
            "name": found.runtime.name,
            "is_here": found.runtime.is_here,
            "served_by_this_agent": found.runtime.serves,
            "remedy": found.runtime.remedy,
        },
        "details": dict(inspection.details),
        "model": None if inspection.model is None else inspection.model.model_dump(mode="json"),
    }


def checkpoint_at(named: str) -> Path:
    """The folder `named`, else the only checkpoint at home whose name begins so.

    Raises:
        NotFound: there is none, or several.
    """
    path = Path(named)
    if path.is_dir():
        return path
    root = home() / "checkpoints"
    found = sorted(folder for folder in root.glob("*") if folder.is_dir() and folder.name.startswith(named))
    if "/" in named or len(found) != 1:
        raise NotFound(f"{named} is no folder, and {len(found)} checkpoints below {root} begin so.", param="checkpoint")
    return found[0]
