"""Decides what the files of a package are, from their bytes: the one place where a kind of package is chosen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge.packages.manifest import MODEL_FILE, ModelFacts
from edge.packages.model_file import inspect
from shared.errors import ModelCorrupt


def facts_of(folder: Path, entry: str) -> ModelFacts:
    """Check the package in `folder`, which is loaded by its `entry`, and return what it says.

    Raises:
        TrustError: broken, or nothing here runs it.
    """
    if entry != MODEL_FILE:
        raise ModelCorrupt(f"The package is loaded by a file other than {MODEL_FILE}.", param="entry")
    with opened_file(folder, entry) as fd:
        return inspect(fd)


@contextmanager
def opened_file(folder: Path, path: str) -> Iterator[int]:
    """The regular file `path` of the package in `folder`, open for reading; a link in its place is not followed.

    Raises:
        ModelCorrupt: it is missing or cannot be opened.
    """
    try:
        fd = os.open(folder / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ModelCorrupt(f"{folder.name}/{path} cannot be opened: {error.strerror}.", param="file") from None
    try:
        yield fd
    finally:
        os.close(fd)
