"""GG-01: lists of a tokenizer that the engine reads without looking: it would read past their end, or abort."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import gguf
import pytest

from edge.packages import vocabulary
from edge.packages.model_file import inspect
from shared.errors import ModelCorrupt
from shared.testing.models import write_gguf

_COUNT = 256
_TYPES, _SCORES = "tokenizer.ggml.token_type", "tokenizer.ggml.scores"
_SUPPRESSED = "tokenizer.ggml.suppress_tokens"


def _refusal(path: Path) -> str | None:
    """The field that the file is refused for."""
    fd = os.open(path, os.O_RDONLY)
    try:
        inspect(fd)
    except ModelCorrupt as error:
        return error.param
    finally:
        os.close(fd)
    return None


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Callable[[gguf.GGUFValueType], None]:
    """A function that makes the writer store whole numbers of lists in another type."""

    def use(kind: gguf.GGUFValueType) -> None:
        told = gguf.GGUFValueType.get_type
        monkeypatch.setattr(
            gguf.GGUFValueType, "get_type", staticmethod(lambda value: kind if isinstance(value, int) else told(value))
        )

    return use


@pytest.mark.parametrize(
    ("key", "values"),
    [
        (_TYPES, [1.0] * _COUNT),
        (_TYPES, [1] * (_COUNT - 1)),
        (_SCORES, [1] * _COUNT),
        (_SCORES, [0.5] * (_COUNT + 1)),
        (_SUPPRESSED, [_COUNT]),
        (_SUPPRESSED, [-1]),
        (_SUPPRESSED, [1.0]),
    ],
)
def test_gg_01_a_list_of_another_kind_or_length_is_refused(tmp_path: Path, key: str, values: Sequence[object]) -> None:
    assert _refusal(write_gguf(tmp_path / "model.gguf", arrays={key: values})) == key


@pytest.mark.parametrize("key", [_TYPES, _SCORES])
@pytest.mark.parametrize("count", [_COUNT, 2000])
def test_gg_01_narrower_numbers_are_refused(
    tmp_path: Path, narrow: Callable[[gguf.GGUFValueType], None], key: str, count: int
) -> None:
    """ggml-org/llama.cpp#24888: as many elements as tokens, of one byte each."""
    narrow(gguf.GGUFValueType.UINT8)
    words = [f"token {index}" for index in range(count)]
    path = write_gguf(tmp_path / "model.gguf", tokens=words, arrays={key: [1] * count})
    assert _refusal(path) == key


def test_gg_01_a_number_in_the_place_of_a_list_is_refused(tmp_path: Path) -> None:
    assert _refusal(write_gguf(tmp_path / "model.gguf", numbers={_SCORES: 1})) == _SCORES


def test_gg_01_a_text_that_stands_twice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ggml-org/llama.cpp#24885: the engine aborts on it. Whatever the pieces in which the file is read."""
    words = [f"token {index}" for index in range(_COUNT)]
    twice = write_gguf(tmp_path / "twice.gguf", tokens=[*words[:-1], words[3]])
    for chunk_bytes in (1, 7, 1 << 20):
        monkeypatch.setattr(vocabulary, "_CHUNK_BYTES", chunk_bytes)
        assert _refusal(twice) == "tokenizer.ggml.tokens"


def test_lists_as_converters_write_them_are_accepted(tmp_path: Path) -> None:
    words = ["", "", *(f"token {index}" for index in range(_COUNT - 2))]
    lists: dict[str, Sequence[object]] = {_TYPES: [1] * _COUNT, _SCORES: [0.0] * _COUNT, _SUPPRESSED: [3, 4]}
    assert _refusal(write_gguf(tmp_path / "model.gguf", tokens=words, arrays=lists)) is None
