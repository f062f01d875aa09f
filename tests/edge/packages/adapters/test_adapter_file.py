"""What an adapter file must be before native code sees it: every refusal names what is wrong and by how much."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.packages.adapters.file import (
    BASE_DIGEST_KEY,
    AdapterFacts,
    Base,
    base_of,
    check_values,
    inspect,
)
from edge.packages.package import Package, opened
from shared.errors import AdapterRejected, ModelCorrupt, TrustError
from tests.edge.adapter_files import write_adapter


@pytest.fixture(scope="session")
def base(installed_model: Package) -> Base:
    with opened(installed_model) as fd:
        return base_of(fd, installed_model.digest)


def facts(path: Path, base: Base, *, rank_limit: int = 16) -> AdapterFacts:
    fd = os.open(path, os.O_RDONLY)
    try:
        found = inspect(fd, base, rank_limit=rank_limit)
        check_values(fd)
        return found
    finally:
        os.close(fd)


def refusal(path: Path, base: Base, **fields: Any) -> TrustError:
    with pytest.raises(TrustError) as caught:
        facts(path, base, **fields)
    return caught.value


def test_a_good_adapter_is_described(tmp_path: Path, base: Base) -> None:
    found = facts(write_adapter(tmp_path / "a.gguf", rank=8), base)
    assert (found.architecture, found.rank, found.alpha, found.modules) == ("llama", 8, 16.0, 90)
    assert found.types == ("F16",)
    assert found.weight_bytes == 2 * found.parameters


@pytest.mark.parametrize("ranks", [{}, {"blk.17.attn_v": 64}])
def test_lr_05_a_rank_over_the_limit_is_told_with_both_numbers(
    tmp_path: Path, base: Base, ranks: dict[str, int]
) -> None:
    """LR-05: also where a single module alone has it."""
    path = write_adapter(tmp_path / "a.gguf", rank=8 if ranks else 64, ranks=ranks)
    error = refusal(path, base)
    assert error.code == "rank_too_high"
    assert "64" in error.message
    assert "16" in error.message
    assert facts(path, base, rank_limit=64).rank == 64


@pytest.mark.parametrize(
    ("tensors", "param"),
    [
        ({"blk.0.attn_q.weight.lora_a": np.zeros((8, 64), np.float16)}, "blk.0.attn_q.weight"),
        ({"blk.0.attn_q.weight.lora_b": np.zeros((64, 8), np.float16)}, "blk.0.attn_q.weight"),
        ({"blk.0.attn_q.weight.lora_b": np.zeros((576, 4), np.float16)}, "blk.0.attn_q.weight"),
        ({"blk.0.attn_q.weight.lora_b": None}, "blk.0.attn_q.weight"),
        ({"blk.0.attn_q.weight.lora_b": np.zeros(576, np.float16)}, "blk.0.attn_q.weight"),
        ({"blk.30.attn_q.weight.lora_a": np.zeros((8, 576), np.float16),
          "blk.30.attn_q.weight.lora_b": np.zeros((576, 8), np.float16)}, "blk.30.attn_q.weight"),
        ({"blk.0.attn_q.weight": np.zeros((8, 576), np.float16)}, "blk.0.attn_q.weight"),
        ({"blk.0.attn_q.weight.lora_a": np.zeros((8, 576), np.int32)}, "blk.0.attn_q.weight.lora_a"),
        ({"blk.0.attn_norm.weight.lora_a": np.zeros((8, 576), np.float16),
          "blk.0.attn_norm.weight.lora_b": np.zeros((576, 8), np.float16)}, "blk.0.attn_norm.weight"),
    ],
)  # fmt: skip
def test_tensors_must_match_the_base(tmp_path: Path, base: Base, tensors: dict[str, Any], param: str) -> None:
    error = refusal(write_adapter(tmp_path / "a.gguf", tensors=tensors), base)
    assert (error.code, error.param) == ("tensor_mismatch", param)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_are_refused(
    tmp_path: Path, base: Base, dtype: type[np.floating[Any]], value: float
) -> None:
    """The engine loads them and answers nonsense with status 200."""
    side = np.zeros((8, 576), dtype)
    side[-1, -1] = value
    error = refusal(
        write_adapter(tmp_path / "a.gguf", dtype=dtype, tensors={"blk.29.attn_q.weight.lora_a": side}), base
    )
    assert (error.code, error.param) == ("not_finite", "blk.29.attn_q.weight.lora_a")


@pytest.mark.parametrize(
    ("strings", "code"),
    [
        ({"general.type": "model"}, "not_an_adapter"),
        ({"adapter.type": "ia3"}, "not_an_adapter"),
        ({"adapter.alora.invocation_tokens": "x"}, "unsupported"),
        ({BASE_DIGEST_KEY: "sha256:" + "0" * 64}, "base_mismatch"),
    ],
)
def test_what_it_says_of_itself_must_fit(tmp_path: Path, base: Base, strings: dict[str, str], code: str) -> None:
    assert refusal(write_adapter(tmp_path / "a.gguf", strings=strings), base).code == code


def test_another_architecture_is_another_base(tmp_path: Path, base: Base) -> None:
    assert refusal(write_adapter(tmp_path / "a.gguf", architecture="qwen2"), base).code == "base_mismatch"


def test_the_stated_base_is_accepted_when_it_is_this_one(tmp_path: Path, base: Base) -> None:
    path = write_adapter(tmp_path / "a.gguf", strings={BASE_DIGEST_KEY: base.digest})
    assert facts(path, base).stated_base_digest == base.digest


def test_a_base_model_is_no_adapter(model_file: Path, base: Base) -> None:
    assert isinstance(refusal(model_file, base), AdapterRejected)


@pytest.mark.parametrize("kept", [0, 3, 23, 100, 5_000, 100_000, -1])
def test_a_truncated_file_is_corrupt(tmp_path: Path, base: Base, kept: int) -> None:
    path = write_adapter(tmp_path / "a.gguf", layers=4)
    path.write_bytes(path.read_bytes()[:kept])
    assert isinstance(refusal(path, base), ModelCorrupt)
