"""A short, repeatable run over mutated headers; the long, coverage-guided one is `fuzz_gguf.py`."""

from __future__ import annotations

import random
import struct
import tracemalloc
from pathlib import Path

import pytest

from edge.packages.gguf import KEPT_TEXT_LIMIT_BYTES, STRING_LIMIT_BYTES, STRINGS_LIMIT
from tests.edge.packages.fuzz_gguf import CORPUS, check

_MUTANTS = 4000
_NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_MEMORY_LIMIT_BYTES = 64 << 20


def mutated(data: bytes, other: bytes, choose: random.Random) -> bytes:
    """`data` after one to four changes of the kinds that break parsers of binary formats."""
    raw = bytearray(data)
    for _ in range(choose.randint(1, 4)):
        at = choose.randrange(len(raw) + 1)
        kind = choose.randrange(6)
        if kind == 0 and at < len(raw):
            raw[at] ^= 1 << choose.randrange(8)
        elif kind == 1:
            layout = choose.choice(("<B", "<H", "<I", "<Q"))
            width = struct.calcsize(layout)
            raw[at : at + width] = struct.pack(layout, choose.choice(_NUMBERS) & ((1 << 8 * width) - 1))
        elif kind == 2:
            del raw[at : at + choose.choice((1, 4, 8, 64))]
        elif kind == 3:
            raw[at:at] = choose.randbytes(choose.choice((1, 4, 8)))
        elif kind == 4:
            raw = raw[:at]
        else:
            begin = choose.randrange(len(other) + 1)
            raw[at:at] = other[begin : begin + choose.choice((8, 16, 64, 256))]
    return bytes(raw)


def test_the_corpus_is_small_and_holds_files_that_are_accepted() -> None:
    files = list(CORPUS.iterdir())
    assert sum(file.stat().st_size for file in files) < 64 << 10
    assert sum(check(file.read_bytes()) for file in files) >= 3


@pytest.mark.parametrize("seed", range(4))
def test_mutants_are_read_or_refused_with_field_and_offset(seed: int) -> None:
    choose = random.Random(seed)
    files = [file.read_bytes() for file in sorted(CORPUS.iterdir())]
    refused = sum(not check(mutated(choose.choice(files), choose.choice(files), choose)) for _ in range(_MUTANTS // 4))
    assert refused > _MUTANTS // 8  # else the mutator does not reach the checks


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _much_text() -> bytes:
    """Keys whose texts are each allowed, and together take four times their size once decoded."""
    text = _string("𝄞".encode() + b"a" * (STRING_LIMIT_BYTES - 4))
    count = KEPT_TEXT_LIMIT_BYTES // STRING_LIMIT_BYTES + 8
    keys = b"".join(_string(b"k%d" % index) + struct.pack("<I", 8) + text for index in range(count))
    return b"GGUF" + struct.pack("<IQQ", 3, 0, count) + keys


def _many_strings() -> bytes:
    array = struct.pack("<IIQ", 9, 8, STRINGS_LIMIT) + struct.pack("<Q", 0) * STRINGS_LIMIT
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + _string(b"k") + array


def _many_tensors() -> bytes:
    tensors = b"".join(
        _string(b"t%050d" % index) + struct.pack("<IQIQ", 1, 32, 0, 128 * index) for index in range(16384)
    )
    return b"GGUF" + struct.pack("<IQQ", 3, 16384, 0) + tensors


@pytest.mark.parametrize("make", [_much_text, _many_strings, _many_tensors])
def test_the_largest_headers_take_bounded_memory(make: object, tmp_path: Path) -> None:
    data = make()  # type: ignore[operator]
    tracemalloc.start()
    try:
        check(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < _MEMORY_LIMIT_BYTES
