"""Whether a whole file is a base model that runs here, and what is said about it."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from edge.packages.manifest import ModelFacts
from edge.packages.model_file import inspect
from shared.errors import ModelCorrupt, NotABaseModel, TrustError, UnsupportedArchitecture
from shared.testing.models import write_gguf


def facts(path: Path) -> ModelFacts:
    fd = os.open(path, os.O_RDONLY)
    try:
        return inspect(fd)
    finally:
        os.close(fd)


def refusal(path: Path) -> TrustError:
    with pytest.raises(TrustError) as caught:
        facts(path)
    return caught.value


def with_empty_architecture(path: Path) -> Path:
    """The writer leaves empty strings out: empty one of one letter, and make another longer by as much."""
    data = write_gguf(path, architecture="x").read_bytes()
    key = b"general.architecture" + struct.pack("<I", 8)
    data = data.replace(key + struct.pack("<Q", 1) + b"x", key + struct.pack("<Q", 0))
    data = data.replace(struct.pack("<Q", 6) + b"smollm", struct.pack("<Q", 7) + b"smollm_")
    path.write_bytes(data)
    return path


def test_the_default_model_is_described(model_file: Path) -> None:
    found = facts(model_file)
    assert (found.architecture, found.quantisation) == ("llama", "Q4_1")
    assert (found.geometry.layers, found.geometry.heads, found.geometry.key_length) == (30, 9, 64)
    assert set(found.geometry.kv_heads_by_layer) == {3}
    assert found.trained_context_tokens == 8192
    assert (found.tokenizer.model, found.tokenizer.pre, found.tokenizer.tokens) == ("gpt2", "smollm", 49152)
    assert found.tokenizer.special_ids["eos"] == 2
    assert found.tokenizer.findings == ()
    assert found.rope.freq_base == 100000.0
    assert sum(found.weight_bytes.values()) < model_file.stat().st_size
    assert found.weight_bytes["feed_forward"] > found.weight_bytes["qkv"] > found.weight_bytes["attention_output"]


@pytest.mark.parametrize(("architecture", "shown"), [("notarch", "'notarch'"), ("", "''"), (None, "missing")])
def test_gg_03_an_unknown_architecture_is_not_called_corrupt(
    tmp_path: Path, architecture: str | None, shown: str
) -> None:
    path = write_gguf(tmp_path / "model.gguf", architecture=architecture or "")
    if architecture == "":
        path = with_empty_architecture(tmp_path / "empty.gguf")
    error = refusal(path)
    assert isinstance(error, UnsupportedArchitecture)
    assert error.code == "unsupported_architecture"
    assert shown in error.message
    assert "corrupt" not in error.message.lower()


@pytest.mark.parametrize("kind", ["adapter", "mmproj", "imatrix"])
def test_gg_03_an_adapter_is_not_a_base_model(tmp_path: Path, kind: str) -> None:
    error = refusal(write_gguf(tmp_path / "model.gguf", strings={"general.type": kind}))
    assert isinstance(error, NotABaseModel)
    assert error.code == "not_a_base_model"
    assert kind in error.message
    assert "corrupt" not in error.message.lower()


def test_one_part_of_a_split_model_is_not_a_base_model(tmp_path: Path) -> None:
    assert isinstance(refusal(write_gguf(tmp_path / "part.gguf", numbers={"split.count": 3})), NotABaseModel)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("{arch}.block_count", 0),
        ("{arch}.block_count", 1 << 31),
        ("{arch}.block_count", 3),
        ("{arch}.context_length", 0),
        ("{arch}.embedding_length", 65),
        ("{arch}.attention.head_count", 0),
        ("{arch}.attention.head_count_kv", 3),
        ("{arch}.vocab_size", 255),
        ("tokenizer.ggml.eos_token_id", 256),
    ],
)
def test_headers_that_kill_the_engine_or_make_it_talk_nonsense_are_refused(
    tmp_path: Path, key: str, value: int
) -> None:
    error = refusal(write_gguf(tmp_path / "model.gguf", numbers={key: value}))
    assert isinstance(error, ModelCorrupt)
    named = key.replace("{arch}", "llama")
    assert error.param == (named if key != "{arch}.embedding_length" else "token_embd.weight")


def test_a_file_without_tokens_is_refused(tmp_path: Path) -> None:
    assert refusal(write_gguf(tmp_path / "model.gguf", tokens=[])).param == "tokenizer.ggml.tokens"


@pytest.mark.parametrize(("pre", "findings"), [("smollm", ()), ("default", ("pre_tokenizer_missing",))])
def test_tk_01_a_pre_tokenizer_that_counts_otherwise_is_reported(
    tmp_path: Path, pre: str, findings: tuple[str, ...]
) -> None:
    tokenizer = facts(write_gguf(tmp_path / "model.gguf", strings={"tokenizer.ggml.pre": pre})).tokenizer
    assert tokenizer.findings == findings
    assert tokenizer.pre == pre


def test_tk_01_a_known_vocabulary_under_another_tag_is_a_mismatch(tmp_path: Path, model_file: Path) -> None:
    head = model_file.read_bytes().replace(b"\x06\0\0\0\0\0\0\0smollm", b"\x06\0\0\0\0\0\0\0qwen2_", 1)
    other = tmp_path / "other.gguf"
    other.write_bytes(head)
    assert facts(other).tokenizer.findings == ("pre_tokenizer_mismatch",)
    assert facts(other).tokenizer.tokens_sha256 == facts(model_file).tokenizer.tokens_sha256
