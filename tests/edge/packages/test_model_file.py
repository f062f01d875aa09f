"""Whether a whole file is a base model that runs here, and what is said about it."""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

from edge.packages.gguf import read_header
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


@dataclass(frozen=True)
class Header:
    """The default model's header over holes, to be changed in place: sizes are right, weights are zero."""

    path: Path

    def put(self, key: str, value: bytes) -> Path:
        """Overwrite the last bytes of a key's value."""
        with self.path.open("r+b") as file:
            file.seek(read_header(file.fileno()).extents[key][1] - len(value))
            file.write(value)
        return self.path

    def reshape(self, tensor: str, dimensions: tuple[int, ...]) -> Path:
        """Give a tensor other dimensions."""
        with self.path.open("r+b") as file:
            (found,) = [each for each in read_header(file.fileno()).tensors if each.name == tensor]
            file.seek(found.described_offset + 8 + len(tensor) + 4)
            file.write(struct.pack(f"<{len(dimensions)}Q", *dimensions))
        return self.path

    def rename(self, tensor: str, name: str) -> Path:
        """Give a tensor another name of the same length."""
        with self.path.open("r+b") as file:
            (found,) = [each for each in read_header(file.fileno()).tensors if each.name == tensor]
            file.seek(found.described_offset + 8)
            file.write(name.encode())
        return self.path


@pytest.fixture
def header_alone(model_file: Path, tmp_path: Path) -> Header:
    with model_file.open("rb") as file:
        header = read_header(file.fileno())
        raw = file.read(header.data_offset)
    path = tmp_path / "header.gguf"
    path.write_bytes(raw)
    os.truncate(path, header.file_bytes)
    return Header(path)


U32, F32 = struct.Struct("<I").pack, struct.Struct("<f").pack


@pytest.mark.parametrize(
    ("key", "value", "param"),
    [
        ("llama.attention.head_count_kv", U32(1), "blk.0.attn_k.weight"),
        ("llama.attention.head_count_kv", U32(9), "blk.0.attn_k.weight"),
        ("llama.attention.head_count", U32(3), "blk.0.attn_k.weight"),
        ("llama.feed_forward_length", U32(1024), "blk.0.ffn_gate.weight"),
        ("llama.embedding_length", U32(640), "token_embd.weight"),
        ("llama.block_count", U32(29), "llama.block_count"),
        ("llama.block_count", U32(31), "llama.block_count"),
        ("llama.rope.dimension_count", U32(63), "llama.rope.dimension_count"),
        ("llama.rope.dimension_count", U32(128), "llama.rope.dimension_count"),
        ("llama.rope.freq_base", F32(0), "llama.rope.freq_base"),
        ("llama.rope.freq_base", F32(float("nan")), "llama.rope.freq_base"),
        ("llama.rope.freq_base", F32(-1e4), "llama.rope.freq_base"),
        ("llama.attention.layer_norm_rms_epsilon", F32(float("inf")), "llama.attention.layer_norm_rms_epsilon"),
        ("llama.attention.layer_norm_rms_epsilon", F32(-1e-5), "llama.attention.layer_norm_rms_epsilon"),
        ("llama.attention.layer_norm_rms_epsilon", F32(2), "llama.attention.layer_norm_rms_epsilon"),
        ("llama.context_length", U32(0), "llama.context_length"),
        ("llama.context_length", U32(1 << 31), "llama.context_length"),
        ("tokenizer.ggml.bos_token_id", U32(49152), "tokenizer.ggml.bos_token_id"),
        ("tokenizer.ggml.unknown_token_id", U32(0xFFFFFFFF), "tokenizer.ggml.unknown_token_id"),
    ],
)
def test_gg_a_key_that_lies_is_found_by_what_the_tensors_say(
    header_alone: Header, key: str, value: bytes, param: str
) -> None:
    """Each of these is a whole file by sizes and offsets; the plan or every answer would be wrong."""
    error = refusal(header_alone.put(key, value))
    assert isinstance(error, ModelCorrupt)
    assert error.param == param
    assert re.match(r"At byte \d+: ", error.message), "every refusal says where in the file"


@pytest.mark.parametrize(
    ("tensor", "dimensions"),
    [
        ("blk.3.attn_k.weight", (192, 576)),
        ("blk.29.attn_v.weight", (288, 384)),
        ("blk.7.ffn_down.weight", (576, 1536)),
        ("token_embd.weight", (1152, 24576)),
    ],
)
def test_gg_a_shape_that_lies_is_refused(header_alone: Header, tensor: str, dimensions: tuple[int, ...]) -> None:
    """The same number of elements, so that every offset is right."""
    error = refusal(header_alone.reshape(tensor, dimensions))
    assert (type(error), error.param) == (ModelCorrupt, tensor)
    assert str(dimensions) in error.message


@pytest.mark.parametrize(
    ("tensor", "name", "param"),
    [
        ("blk.5.attn_k.weight", "blk.5.attn_z.weight", "blk.5.attn_k.weight"),
        ("blk.5.attn_k.weight", "blk.5.attn_k.wright", "blk.5.attn_k.weight"),
        ("blk.5.attn_k.weight", "blk.9.attn_z.weight", "blk.5.attn_k.weight"),
        ("token_embd.weight", "token_embd.wright", "token_embd.weight"),
    ],
)
def test_gg_a_block_that_lacks_a_tensor_is_refused(header_alone: Header, tensor: str, name: str, param: str) -> None:
    error = refusal(header_alone.rename(tensor, name))
    assert (type(error), error.param) == (ModelCorrupt, param)


def test_gg_switches_and_merges_of_other_types_are_refused(tmp_path: Path) -> None:
    merges = write_gguf(tmp_path / "merges.gguf", arrays={"tokenizer.ggml.merges": [1, 2]})
    assert refusal(merges).param == "tokenizer.ggml.merges"
    adds = write_gguf(tmp_path / "adds.gguf", numbers={"tokenizer.ggml.add_bos_token": 7})
    assert refusal(adds).param == "tokenizer.ggml.add_bos_token"
    eos = write_gguf(tmp_path / "eos.gguf", switches={"tokenizer.ggml.padding_token_id": True})
    assert refusal(eos).param == "tokenizer.ggml.padding_token_id"


def test_gg_a_dimension_stored_as_a_long_list_is_not_taken_for_absent(tmp_path: Path) -> None:
    """A list that is too long to keep, in the place of a number with a default."""
    path = write_gguf(tmp_path / "long.gguf", arrays={"llama.attention.head_count_kv": [2] * 2000}, kv_heads=None)
    assert refusal(path).param == "llama.attention.head_count_kv"


def test_gg_every_refusal_of_a_whole_file_says_where(tmp_path: Path) -> None:
    """GG-03 too: what is unsupported, or no base model, is found at a byte as well."""
    for path in (
        write_gguf(tmp_path / "a.gguf", strings={"general.type": "adapter"}),
        write_gguf(tmp_path / "b.gguf", architecture="notarch"),
        write_gguf(tmp_path / "c.gguf", numbers={"split.count": 2}),
    ):
        assert re.match(r"At byte \d+: ", refusal(path).message)
