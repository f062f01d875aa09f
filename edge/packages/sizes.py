"""How many bytes files take that another process may be writing, moving and removing meanwhile."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path


def file_sizes(*paths: Path) -> Iterator[int]:
    """Bytes of each file at or below `paths`; a link counts as itself. What is gone when its turn comes is left out."""
    for path in paths:
        # `os.walk` passes over folders that went away; `Path.rglob` fails on them.
        below = (os.path.join(parent, name) for parent, folders, names in os.walk(path) for name in (*names, *folders))  # noqa: PTH118
        for each in (str(path), *below):
            try:
                facts = os.lstat(each)
            except FileNotFoundError:
                continue
            if not stat.S_ISDIR(facts.st_mode):
                yield facts.st_size
