"""GGUF: one file with header and weights, run by llama.cpp."""

from __future__ import annotations

from edge.packages.formats.entry import Inspection
from edge.packages.formats.files import Files
from edge.packages.gguf import MAGIC
from edge.packages.model_file import inspect as inspect_file


def recognise(files: Files) -> bool:
    """One file that begins as every GGUF file does."""
    return len(files.names) == 1 and files.head(files.names[0]).startswith(MAGIC)


def inspect(files: Files) -> Inspection:
    """Raises as `edge.packages.model_file.inspect`."""
    model = inspect_file(files.descriptor(files.names[0]))
    return Inspection(details={}, model=model)
