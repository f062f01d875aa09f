"""Reads a candidate as an installation would, and makes one of every format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edge.packages.formats.entry import Format, Inspection
from edge.packages.formats.files import opened_candidate
from edge.packages.formats.registry import format_of
from shared.errors import TrustError
from shared.testing.models import write_gguf
from tests.edge.packages.formats import builders as build


def read(path: Path) -> tuple[Format, Inspection]:
    with opened_candidate(path) as files:
        found = format_of(files)
        return found, found.inspect(files)


def refusal(path: Path) -> TrustError:
    with pytest.raises(TrustError) as refused:
        read(path)
    assert refused.value.param
    return refused.value


def wrote(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


MAKERS: dict[str, Callable[[Path], Path]] = {
    "gguf": lambda folder: write_gguf(folder / "m.gguf"),
    "onnx": lambda folder: build.onnx_package(folder / "onnx"),
    "executorch": lambda folder: wrote(
        folder / "m.pte", build.pte(build.executorch_program(segments=((0, 16),)), bytes(16))
    ),
    "coreml": lambda folder: build.mlpackage(folder / "m.mlpackage"),
    "mlc": lambda folder: build.mlc_package(folder / "mlc"),
}
