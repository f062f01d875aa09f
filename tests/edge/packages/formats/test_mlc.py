"""MLC packages: facts, records that do not fit, bytes that changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shared.errors import DigestMismatch, ModelCorrupt
from tests.edge.packages.formats import builders as build
from tests.edge.packages.formats.reading import read, refusal


@pytest.mark.parametrize("cache", ["tensor-cache.json", "ndarray-cache.json"])
def test_mlc_facts(tmp_path: Path, cache: str) -> None:
    _, inspection = read(build.mlc_package(tmp_path / "mlc", cache=cache))
    assert inspection.details["architecture"] == "llama"
    assert inspection.details["quantisation"] == "q4f16_1"
    assert (inspection.details["shards"], inspection.details["tensors"]) == (1, 2)


def record(offset: int, size: int = 64, **fields: Any) -> dict[str, Any]:
    return {"name": "a", "shape": [16], "dtype": "float32", "nbytes": size, "byteOffset": offset} | fields


@pytest.mark.parametrize(
    "shard",
    [
        {"dataPath": "../params_shard_0.bin"},
        {"dataPath": "params_shard_7.bin"},
        {"nbytes": 95},
        {"records": [record(0)]},
        {"records": [record(0), record(32, 64)]},
        {"records": [record(32)]},
        {"records": [record(0, 96)]},
        {"records": [record(0, dtype="object")]},
        {"records": [record(0, shape=[-16])]},
    ],
)
def test_mlc_records_that_do_not_fit(tmp_path: Path, shard: dict[str, Any]) -> None:
    assert isinstance(refusal(build.mlc_package(tmp_path / "mlc", shard=shard)), ModelCorrupt)


def test_mlc_bytes_that_changed(tmp_path: Path) -> None:
    folder = build.mlc_package(tmp_path / "mlc")
    with (folder / "params_shard_0.bin").open("r+b") as file:
        file.write(b"\xff")
    assert isinstance(refusal(folder), DigestMismatch)


def test_mlc_brings_no_library(tmp_path: Path) -> None:
    folder = build.mlc_package(tmp_path / "mlc")
    (folder / "model.so").write_bytes(b"\x7fELF")
    assert refusal(folder).param == "model.so"
