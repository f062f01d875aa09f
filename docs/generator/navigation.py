"""Puts every page of the folders that the navigation names into it, so that a new runbook or decision needs no entry.

A hook of MkDocs: `mkdocs.yml` names it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

_LATER = {"Explanation": ["benchmarks.md"]}
"""Pages that commands write: listed once they are there."""


def on_config(config: Any) -> Any:
    """Replace each folder of the navigation by its pages, in the order of their names."""
    docs = Path(config["docs_dir"])
    for entry in config["nav"]:
        if not isinstance(entry, dict):
            continue
        for title, value in entry.items():
            if isinstance(value, str) and value.endswith("/"):
                entry[title] = [page.relative_to(docs).as_posix() for page in sorted((docs / value).glob("*.md"))]
            elif title in _LATER:
                entry[title] = [*value, *(name for name in _LATER[title] if (docs / name).exists())]
    return config
