"""Core ML packages: facts, items that lead nowhere, models and weights that are broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.edge.packages.formats import builders as build
from tests.edge.packages.formats.reading import MAKERS, read, refusal


def test_coreml_facts(tmp_path: Path) -> None:
    _, inspection = read(MAKERS["coreml"](tmp_path))
    assert inspection.details["specification_version"] == 9
    assert inspection.details["kind"] == "ML program"
    assert inspection.details["functions"] == ("main",)
    assert (inspection.details["inputs"], inspection.details["state"]) == (("input_ids",), ("cache",))
    assert inspection.details["weight_blobs"] == 2


@pytest.mark.parametrize(
    ("manifest", "param"),
    [
        ({}, "rootModelIdentifier"),
        ({"itemInfoEntries": {"A": {"path": "x"}}, "rootModelIdentifier": "B"}, "rootModelIdentifier"),
        ({"itemInfoEntries": {"A": {"path": "../../x.mlmodel"}}, "rootModelIdentifier": "A"}, "A"),
        ({"itemInfoEntries": {"A": {"path": "/x.mlmodel"}}, "rootModelIdentifier": "A"}, "A"),
        ({"itemInfoEntries": {"A": {"path": "gone.mlmodel"}}, "rootModelIdentifier": "A"}, "Data/gone.mlmodel"),
    ],
)
def test_coreml_items_that_lead_nowhere(tmp_path: Path, manifest: dict[str, Any], param: str) -> None:
    assert refusal(build.mlpackage(tmp_path / "m.mlpackage", manifest=manifest)).param == param


@pytest.mark.parametrize(
    ("model", "param"),
    [
        (build.coreml_model(kind=555), "customModel"),
        (build.coreml_model(version=0), "specificationVersion"),
        (build.coreml_model()[:-2], "Data/com.apple.CoreML/model.mlmodel"),
    ],
)
def test_coreml_models_that_are_refused(tmp_path: Path, model: bytes, param: str) -> None:
    assert refusal(build.mlpackage(tmp_path / "m.mlpackage", model=model)).param == param


@pytest.mark.parametrize("damage", ["short", "mark", "count", "version"])
def test_coreml_weights_that_are_broken(tmp_path: Path, damage: str) -> None:
    folder = build.mlpackage(tmp_path / "m.mlpackage")
    path = folder / "Data/com.apple.CoreML/weights/weight.bin"
    data = bytearray(path.read_bytes())
    if damage == "short":
        del data[150:]
    elif damage == "mark":
        data[64] ^= 1
    else:
        data[0 if damage == "count" else 4] = 9
    path.write_bytes(data)
    assert str(refusal(folder).param).endswith("weight.bin")
