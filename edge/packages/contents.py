"""Decides what the files of a package are, from their bytes: the one place where a kind of package is chosen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge.packages.formats import files as opening
from edge.packages.formats.entry import Inspection
from edge.packages.formats.files import Files
from edge.packages.formats.registry import format_of, require_served
from edge.packages.manifest import MANIFEST_FILE, SIGNATURE_FILE, ModelFacts
from shared.errors import ModelCorrupt, UnsupportedArchitecture


def facts_of(folder: Path, entry: str) -> ModelFacts:
    """Check the package in `folder`, which is loaded by its `entry`, and return what it says.

    Raises:
        TrustError: broken, or nothing here runs it.
    """
    with opening.opened_candidate(folder) as files:
        described = {name for name in files.names if name not in (MANIFEST_FILE, SIGNATURE_FILE)}
        return facts_of_files(files.only(described), entry)


def facts_of_files(files: Files, entry: str) -> ModelFacts:
    """The same for files that are open already; they are the package's, without manifest and signature."""
    found = format_of(files)
    require_served(found)
    if entry != found.entry:
        raise ModelCorrupt(f"A {found.title} package is not loaded by {entry}.", param="entry")
    return _stated(found.inspect(files))


def _stated(inspection: Inspection) -> ModelFacts:
    if inspection.model is None:
        raise UnsupportedArchitecture("The package does not state what a plan needs.", param="model")
    return inspection.model


@contextmanager
def opened_file(folder: Path, path: str) -> Iterator[int]:
    """The regular file `path` of the package in `folder`, open for reading; a link in its place is not followed.

    Raises:
        ModelCorrupt: it is missing or cannot be opened.
    """
    descriptor = opening.opened_file(folder, path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
