"""ExecuTorch programs: facts, and files that are broken or cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.errors import TrustError
from tests.edge.packages.formats import builders as build
from tests.edge.packages.formats.reading import read, refusal, wrote


def test_executorch_facts(tmp_path: Path) -> None:
    program = build.executorch_program(methods=("forward", "prefill"), segments=((0, 16), (16, 8)))
    _, inspection = read(wrote(tmp_path / "m.pte", build.pte(program, bytes(24))))
    assert inspection.details["methods"] == ("forward", "prefill")
    assert inspection.details["operators"] == ("aten::add",)
    assert inspection.details["delegates"] == ("XnnpackBackend",)
    assert inspection.details["segments"] == 2
    _, old = read(wrote(tmp_path / "old.pte", build.pte(build.executorch_program(), header=False)))
    assert old.details["methods"] == ("forward",)


@pytest.mark.parametrize(
    ("data", "param"),
    [
        (build.pte(build.executorch_program(), program_size=1 << 40), "program_size"),
        (build.pte(build.executorch_program(), program_size=0), "program_size"),
        (build.pte(build.executorch_program(), bytes(8), segment_base=1 << 40), "segment_base_offset"),
        (build.pte(build.executorch_program(), bytes(8), segment_base=8), "segment_base_offset"),
        (build.pte(build.executorch_program(), length=4), "header_length"),
        (build.pte(build.executorch_program(segments=((0, 64),)), bytes(16)), "segments.0"),
        (build.pte(build.executorch_program(segments=((0, 8),))), "segments.0"),
        (build.pte(build.executorch_program(methods=())), "execution_plan"),
        (b"\xff\xff\xff\x7fET12" + bytes(64), "program"),
        (build.pte(build.executorch_program())[:20], "eh00"),
    ],
)
def test_executorch_files_that_are_broken(tmp_path: Path, data: bytes, param: str) -> None:
    error = refusal(wrote(tmp_path / "m.pte", data))
    assert error.param == param
    assert "At byte" in error.message or param == "execution_plan"


def test_an_executorch_file_cut_anywhere_is_refused_or_read(tmp_path: Path) -> None:
    data = build.pte(build.executorch_program(segments=((0, 16),)), bytes(16))
    for size in range(8, len(data)):
        with pytest.raises(TrustError):
            read(wrote(tmp_path / "m.pte", data[:size]))
