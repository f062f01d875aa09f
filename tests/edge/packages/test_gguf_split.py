"""Split models: joined to the very file that was split, and refused when parts are missing, foreign or in disorder."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edge.packages.gguf_split import joined, joined_bytes, part_name
from edge.packages.library import Library
from edge.packages.outline import outline_of_file
from edge.packages.package import Package
from shared.errors import FileMissing, ModelCorrupt, NotABaseModel
from shared.testing.models import write_gguf
from tests.edge.packages.split_models import key, split


def read_joined(parts: list[Path], step: int = 1000) -> bytes:
    with joined(parts) as stream:
        chunks = list(iter(lambda: stream.read(step), b""))
    assert all(len(chunk) <= step for chunk in chunks)
    return b"".join(chunks)


@pytest.mark.parametrize("sizes", [(4,), (1, 3), (0, 2, 2), (2, 1, 1)])
def test_parts_become_the_file_that_was_split(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    whole = write_gguf(tmp_path / "whole.gguf")
    parts = split(whole, tmp_path / "parts", sizes)
    assert read_joined(parts) == whole.read_bytes()
    assert joined_bytes(parts) == whole.stat().st_size


def test_parts_of_the_reference_writer_are_joined(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    for split_tensors in (0, 2):
        writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama", split_max_tensors=split_tensors)
        writer.add_uint32("llama.block_count", 1)
        for number in range(5):
            writer.add_tensor(f"t{number}", np.full((3 + number, 4), number, dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    parts = sorted(tmp_path.glob("m-*.gguf"))
    assert len(parts) == 3
    assert read_joined(parts) == (tmp_path / "m.gguf").read_bytes()


@pytest.mark.parametrize("what", ["first", "last", "folder"])
def test_any_part_or_the_folder_stands_for_all(installed_model: Package, tmp_path: Path, what: str) -> None:
    """The digest is that of the file before it was split: the same model whatever way it came."""
    source = installed_model.model_path
    parts = split(source, tmp_path / "parts", (0, 100, 172), "Smol")
    library = Library(tmp_path / "models")
    package = library.pull(str({"first": parts[0], "last": parts[-1], "folder": parts[0].parent}[what]), name="m")
    assert package.digest == installed_model.digest
    assert library.verify("m").package.manifest.model == installed_model.manifest.model


def test_the_name_is_that_of_the_split_file(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "whole.gguf")
    (first, _) = split(whole, tmp_path / "parts", (2, 2), "tiny")
    package = Library(tmp_path / "models").pull(str(first))
    assert package.name == "tiny"
    assert package.digest == f"sha256:{hashlib.sha256(whole.read_bytes()).hexdigest()}"


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    parts = split(write_gguf(tmp_path / "whole.gguf"), tmp_path / "parts", (1, 1, 2))
    parts[1].unlink()
    with pytest.raises(FileMissing) as refused:
        Library(tmp_path / "models").pull(str(parts[0]))
    assert refused.value.param == parts[1].name
    assert "3 files" in refused.value.message


def _swapped(parts: list[Path]) -> None:
    shutil.move(parts[1], parts[1].with_suffix(".x"))
    shutil.move(parts[2], parts[1])
    shutil.move(parts[1].with_suffix(".x"), parts[2])


def _of_another_count(parts: list[Path]) -> None:
    raw = parts[1].read_bytes()
    parts[1].write_bytes(raw.replace(key("split.count", 2, 3), key("split.count", 2, 4)))


def _with_fewer_tensors(parts: list[Path]) -> None:
    raw = parts[2].read_bytes()
    parts[2].write_bytes(raw.replace(key("split.tensors.count", 5, 4), key("split.tensors.count", 5, 3)))


def _not_a_part(parts: list[Path]) -> None:
    write_gguf(parts[1])


def _cut(parts: list[Path]) -> None:
    raw = parts[1].read_bytes()
    parts[1].write_bytes(raw[:-40])


def _repeated(parts: list[Path]) -> None:
    raw = parts[2].read_bytes()
    parts[2].write_bytes(raw.replace(b"blk.1.attn_norm", b"blk.0.attn_norm"))


@pytest.mark.parametrize(
    ("damage", "param"),
    [
        (_swapped, "split.no"),
        (_of_another_count, "split.count"),
        (_with_fewer_tensors, "split.tensors.count"),
        (_not_a_part, "split.no"),
        (_cut, "file"),
        (_repeated, "blk.0.attn_norm.weight"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(
    tmp_path: Path, damage: Callable[[list[Path]], None], param: str
) -> None:
    parts = split(write_gguf(tmp_path / "whole.gguf"), tmp_path / "parts", (1, 1, 2))
    damage(parts)
    library = Library(tmp_path / "models")
    with pytest.raises(ModelCorrupt) as refused:
        library.pull(str(parts[0]))
    assert refused.value.param == param
    assert library.installed() == ()


def test_a_part_alone_is_neither_imported_nor_planned(tmp_path: Path) -> None:
    parts = split(write_gguf(tmp_path / "whole.gguf"), tmp_path / "parts", (2, 2))
    alone = shutil.copy(parts[0], tmp_path / "alone.gguf")
    for use in (
        lambda: Library(tmp_path / "models").import_path(Path(alone), "m"),
        lambda: outline_of_file(Path(alone)),
    ):
        with pytest.raises(NotABaseModel, match="split into 2 files"):
            use()


@pytest.mark.parametrize(
    "name", ["m.gguf", "m-00000-of-00002.gguf", "m-00003-of-00002.gguf", "m-1-of-2.gguf", "m-00001-of-01000.gguf"]
)
def test_other_names_are_no_parts(name: str) -> None:
    assert part_name(name) is None
