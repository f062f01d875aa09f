"""The header check: what it refuses, in which words, and within which bounds."""

from __future__ import annotations

import os
import shutil
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.packages import gguf
from edge.packages.gguf import GgufArray, GgufHeader, read_header
from edge.packages.model_file import inspect
from shared.errors import ModelCorrupt, TrustError, UnsupportedFormat
from shared.testing.models import write_gguf


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A complete file with real bytes where tensors lie."""
    return write_gguf(tmp_path / "whole.gguf")


def read(path: Path) -> GgufHeader:
    fd = os.open(path, os.O_RDONLY)
    try:
        return read_header(fd)
    finally:
        os.close(fd)


def refusal(path: Path) -> ModelCorrupt:
    with pytest.raises(ModelCorrupt) as caught:
        read(path)
    return caught.value


def patched(source: Path, find: bytes, replace: bytes, *, skip: int = 0) -> Path:
    """A copy in which the bytes `skip` after `find` are overwritten by `replace`."""
    data = bytearray(source.read_bytes())
    at = data.index(find) + len(find) + skip
    data[at : at + len(replace)] = replace
    target = source.with_name("patched.gguf")
    target.write_bytes(data)
    return target


def preamble(tensors: int = 0, keys: int = 0, version: int = 3, magic: bytes = b"GGUF") -> bytes:
    return magic + struct.pack("<IQQ", version, tensors, keys)


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def test_reads_what_the_writer_wrote(whole: Path) -> None:
    header = read(whole)
    assert header.version == 3
    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["llama.block_count"] == 2
    tokens = header.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, GgufArray)
    assert tokens.count == 256
    assert [t.name for t in header.tensors] == [
        "token_embd.weight",
        "blk.0.attn_norm.weight",
        "blk.1.attn_norm.weight",
        "output_norm.weight",
    ]
    assert header.tensors[0].dimensions == (64, 256)
    assert header.tensors[0].offset == header.data_offset
    assert header.tensors[-1].offset + header.tensors[-1].size_bytes == header.file_bytes


def test_agrees_with_the_reference_reader(whole: Path) -> None:
    reference = pytest.importorskip("gguf").GGUFReader(whole)
    header = read(whole)
    assert header.data_offset == reference.data_offset
    assert [(t.name, t.offset, t.size_bytes, t.type_name) for t in header.tensors] == [
        (t.name, t.data_offset, t.n_bytes, t.tensor_type.name) for t in reference.tensors
    ]
    for key, value in header.metadata.items():
        if not isinstance(value, GgufArray):
            assert reference.fields[key].contents() == value


@pytest.mark.parametrize("cut", ["nothing", "magic", "preamble", "header", "half", "one_byte"])
def test_gg_01_a_truncated_file_is_refused_with_both_sizes(whole: Path, cut: str) -> None:
    header = read(whole)
    size = {
        "nothing": 0,
        "magic": 3,
        "preamble": 20,
        "header": header.data_offset - 33,
        "half": header.data_offset + (header.file_bytes - header.data_offset) // 2,
        "one_byte": header.file_bytes - 1,
    }[cut]
    os.truncate(whole, size)
    error = refusal(whole)
    assert error.code == "model_corrupt"
    assert str(size) in error.message
    assert "expected" in error.message
    assert error.param
    if cut in ("half", "one_byte"):
        assert str(header.file_bytes) in error.message


def test_gg_01_every_cut_of_the_header_is_refused(whole: Path) -> None:
    full = read(whole).data_offset
    for size in range(0, full, 31):
        cut = shutil.copy(whole, whole.with_name("cut.gguf"))
        os.truncate(cut, size)
        assert str(size) in refusal(Path(cut)).message


def test_a_file_with_bytes_after_its_tensors_is_refused(whole: Path) -> None:
    size = whole.stat().st_size
    os.truncate(whole, size + 64)
    assert str(size) in refusal(whole).message


@pytest.mark.parametrize(
    ("content", "param"),
    [
        (preamble(magic=b"PK\x03\x04"), "magic"),
        (preamble(version=0), "version"),
        (preamble(version=0x01010101), "version"),
        (preamble(tensors=1 << 40), "tensor_count"),
        (preamble(tensors=(1 << 64) - 1), "tensor_count"),
        (preamble(keys=1 << 63), "metadata_kv_count"),
        (preamble(keys=1) + struct.pack("<Q", 1 << 62), "length of key 0"),
        (preamble(keys=1) + string(b""), "key 0"),
        (preamble(keys=1) + string(b"\xff\xfe"), "key 0"),
        (preamble(keys=1) + string(b"k") + struct.pack("<I", 99), "type of k"),
        (preamble(keys=1) + string(b"k") + struct.pack("<IIQ", 9, 9, 1), "element type of k"),
        (preamble(keys=1) + string(b"k") + struct.pack("<IIQ", 9, 4, 1 << 61), "k"),
        (preamble(keys=1) + string(b"k") + struct.pack("<IIQ", 9, 8, 1 << 61), "length of k"),
        (preamble(keys=1) + string(b"k") + struct.pack("<IIQQ", 9, 8, 2, 1 << 60), "length in k"),
        (preamble(keys=1) + string(b"k") + struct.pack("<IQ", 8, 1 << 40), "length of k"),
        (preamble(keys=2) + 2 * (string(b"k") + struct.pack("<II", 4, 1)), "key 1"),
        (preamble(keys=1) + string(b"general.alignment") + struct.pack("<II", 4, 0), "general.alignment"),
        (preamble(keys=1) + string(b"general.alignment") + struct.pack("<II", 4, 48), "general.alignment"),
        (preamble(tensors=1) + string(b"n" * 64), "length of name of tensor 0"),
        (preamble(tensors=1) + string(b"t") + struct.pack("<I", 0), "rank of t"),
        (preamble(tensors=1) + string(b"t") + struct.pack("<I", 5), "rank of t"),
        (preamble(tensors=1) + string(b"t") + struct.pack("<IQIQ", 1, 32, 1 << 16, 0), "type of t"),
        (preamble(tensors=1) + string(b"t") + struct.pack("<IQIQ", 1, 0, 0, 0), "dimensions of t"),
        (preamble(tensors=1) + string(b"t") + struct.pack("<IQQIQ", 2, 1 << 40, 1 << 40, 0, 0), "dimensions of t"),
        (preamble(tensors=1) + string(b"t") + struct.pack("<IQIQ", 1, 33, 2, 0), "dimensions of t"),
        (preamble(tensors=1) + string(b"t") + struct.pack("<IQIQ", 1, 32, 0, 1), "t"),
        (preamble(tensors=1) + string(b"t") + struct.pack("<IQIQ", 1, 32, 0, 1 << 62), "t"),
    ],
)
def test_a_broken_field_is_named(tmp_path: Path, content: bytes, param: str) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(content + bytes(64))
    error = refusal(path)
    assert error.param == param
    assert len(error.message) < 300


@pytest.mark.parametrize(
    ("content", "param", "shown"),
    [
        (preamble(version=1), "version", "is 1;"),
        (preamble(version=4), "version", "is 4;"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version", "other byte order"),
        (preamble(tensors=1) + string(b"t") + struct.pack("<IQIQ", 1, 32, 31, 0), "type of t", "Q4_0_4_4"),
        (preamble(tensors=1) + string(b"t") + struct.pack("<IQIQ", 1, 32, 4, 0), "type of t", "Q4_2"),
        (preamble(tensors=1) + string(b"t") + struct.pack("<IQIQ", 1, 32, 77, 0), "type of t", "is 77"),
    ],
)
def test_gg_03_what_is_newer_older_or_turned_round_is_not_called_corrupt(
    tmp_path: Path, content: bytes, param: str, shown: str
) -> None:
    """GG-03: to fetch such a file again changes nothing."""
    path = tmp_path / "other.gguf"
    path.write_bytes(content + bytes(64))
    with pytest.raises(UnsupportedFormat) as caught:
        read(path)
    assert (caught.value.code, caught.value.param) == ("unsupported_format", param)
    assert shown in caught.value.message
    assert "corrupt" not in caught.value.message.lower()


def test_overlap_gap_and_repeat_of_tensors_are_refused(whole: Path) -> None:
    name = b"blk.1.attn_norm.weight"
    fields = struct.pack("<IQI", 1, 64, 0)
    assert "overlaps" in refusal(patched(whole, name + fields, struct.pack("<Q", 0))).message
    assert "gap" in refusal(patched(whole, name + fields, struct.pack("<Q", 1 << 20))).message
    assert "aligned" in refusal(patched(whole, name + fields, struct.pack("<Q", 65537))).message
    assert "twice" in refusal(patched(whole, struct.pack("<Q", 22) + b"blk.", b"1")).message


def test_a_folder_a_pipe_and_a_device_are_refused(tmp_path: Path) -> None:
    pipe, writer = os.pipe()
    device = os.open("/dev/zero", os.O_RDONLY)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        for fd in (pipe, device, folder):
            with pytest.raises(ModelCorrupt, match="regular file"):
                read_header(fd)
    finally:
        for fd in (pipe, writer, device, folder):
            os.close(fd)


def _many_keys() -> bytes:
    arrays = [string(b"k%d" % i) + struct.pack("<IIQ", 9, 4, 1024) + bytes(4096) for i in range(4096)]
    return preamble(keys=4096) + b"".join(arrays)


def _many_strings() -> bytes:
    return preamble(keys=1) + string(b"k") + struct.pack("<IIQ", 9, 8, gguf.STRINGS_LIMIT) + bytes(8 << 20)


def _long_strings() -> bytes:
    one = struct.pack("<Q", gguf.STRING_LIMIT_BYTES) + bytes(gguf.STRING_LIMIT_BYTES)
    return preamble(keys=1) + string(b"k") + struct.pack("<IIQ", 9, 8, 1000) + one * 8


def _many_tensors() -> bytes:
    one = struct.pack("<IQIQ", 1, 32, 0, 0)
    return preamble(tensors=gguf.TENSORS_LIMIT) + b"".join(string(b"t%d" % i) + one for i in range(gguf.TENSORS_LIMIT))


@pytest.mark.parametrize("content", [_many_keys, _many_strings, _long_strings, _many_tensors])
def test_work_and_memory_are_bounded_whatever_the_file_says(
    tmp_path: Path, content: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tracing every allocation is slow: counts are limited further here, sizes are the real ones.
    monkeypatch.setattr(gguf, "STRINGS_LIMIT", 1 << 14)
    monkeypatch.setattr(gguf, "TENSORS_LIMIT", 1 << 10)
    path = tmp_path / "large.gguf"
    path.write_bytes(content())
    os.truncate(path, 1 << 40)  # a sparse terabyte: lengths that lie inside the file prove nothing
    bytes_read = 0
    pread = os.pread

    def counted(fd: int, size: int, offset: int) -> bytes:
        nonlocal bytes_read
        bytes_read += size
        return pread(fd, size, offset)

    monkeypatch.setattr(os, "pread", counted)
    tracemalloc.start()
    try:
        refusal(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 32 << 20
    assert bytes_read < 4 * gguf.HEADER_LIMIT_BYTES


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_to_the_header_ends_in_a_verdict(whole: Path, data: st.DataObject) -> None:
    original = whole.read_bytes()
    damaged = bytearray(original)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(original) // 3))
        damaged[at : at + 8] = data.draw(st.binary(min_size=8, max_size=8))
    path = whole.with_name("damaged.gguf")
    path.write_bytes(damaged[: len(original)])
    fd = os.open(path, os.O_RDONLY)
    try:
        inspect(fd)
    except TrustError as error:
        assert error.param
        assert error.message
    finally:
        os.close(fd)
