"""PEFT folders: what is served, and every way in which one can be none for this base model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloud.adapters.peft import CONFIG_FILE, WEIGHTS_FILE, AdapterRejected, inspect
from tests.cloud.adapters.peft_files import BASE, write_peft, write_safetensors

FIRST = "base_model.model.model.layers.0.self_attn.v_proj"


def test_a_whole_adapter_is_described(tmp_path: Path) -> None:
    facts = inspect(write_peft(tmp_path, rank=8, layers=3), BASE, rank_limit=16)
    assert (facts.rank, facts.alpha, facts.modules) == (8, 16, 6)
    assert facts.parameters == 3 * 8 * ((576 + 192) + (1536 + 576))


@pytest.mark.parametrize(
    "config", [{}, {"rank_pattern": {"layers.0.mlp.down_proj": 64}}], ids=["all modules", "a single module"]
)
def test_a_rank_over_the_limit_is_refused_with_both_numbers(tmp_path: Path, config: dict[str, Any]) -> None:
    """LR-05: whether every module has it or one alone."""

    def widen(tensors: dict[str, np.ndarray[Any, Any]]) -> None:
        name = "base_model.model.model.layers.0.mlp.down_proj"
        tensors[f"{name}.lora_A.weight"] = np.zeros((64, 1536), np.float32)
        tensors[f"{name}.lora_B.weight"] = np.zeros((576, 64), np.float32)

    folder = write_peft(tmp_path, rank=8 if config else 64, config=config, change=widen)
    with pytest.raises(AdapterRejected, match=r"rank 64; at most rank 16") as caught:
        inspect(folder, BASE, rank_limit=16)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "rank_too_high", "rank")


def test_a_module_with_a_rank_of_its_own_would_be_scaled_wrongly(tmp_path: Path) -> None:
    with pytest.raises(AdapterRejected, match="ranks of their own"):
        inspect(write_peft(tmp_path, rank=8, config={"r": 4}), BASE, rank_limit=64)


@pytest.mark.parametrize(
    "config",
    [
        {"peft_type": "LOHA"},
        {"use_dora": True},
        {"bias": "all"},
        {"modules_to_save": ["lm_head"]},
        {"r": 0},
        {"r": "8x"},
        {"lora_alpha": -1},
        {"fan_in_fan_out": True},
        {"alpha_pattern": {"v_proj": 3}},
    ],
    ids=lambda config: next(iter(config)),
)
def test_kinds_that_the_engine_does_not_compute_are_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    with pytest.raises(AdapterRejected):
        inspect(write_peft(tmp_path, config=config), BASE, rank_limit=64)


def _drop(tensors: dict[str, Any]) -> None:
    tensors.pop(f"{FIRST}.lora_B.weight")


def _other_shape(tensors: dict[str, Any]) -> None:
    tensors[f"{FIRST}.lora_A.weight"] = np.zeros((8, 577), np.float32)


def _two_ranks(tensors: dict[str, Any]) -> None:
    tensors[f"{FIRST}.lora_B.weight"] = np.zeros((192, 4), np.float32)


def _beyond(tensors: dict[str, Any]) -> None:
    tensors["base_model.model.model.layers.99.self_attn.v_proj.lora_A.weight"] = np.zeros((8, 576), np.float32)


def _other_module(tensors: dict[str, Any]) -> None:
    tensors["base_model.model.lm_head.lora_A.weight"] = np.zeros((8, 576), np.float32)


def _flat(tensors: dict[str, Any]) -> None:
    tensors[f"{FIRST}.lora_A.weight"] = np.zeros(8 * 576, np.float32)


@pytest.mark.parametrize("change", [_drop, _other_shape, _two_ranks, _beyond, _other_module, _flat])
def test_what_does_not_fit_the_base_is_refused(tmp_path: Path, change: Any) -> None:
    with pytest.raises(AdapterRejected) as caught:
        inspect(write_peft(tmp_path, change=change), BASE, rank_limit=64)
    assert caught.value.code == "base_mismatch"


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_are_refused(tmp_path: Path, value: float) -> None:
    def spoil(tensors: dict[str, Any]) -> None:
        tensors[f"{FIRST}.lora_A.weight"][3, 5] = value

    with pytest.raises(AdapterRejected) as caught:
        inspect(write_peft(tmp_path, change=spoil), BASE, rank_limit=64)
    assert caught.value.code == "not_finite"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff" * 8,
        (2).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (4).to_bytes(8, "little") + b"null",
        (30).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[1',
        (55).to_bytes(8, "little") + b'{"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}} ' + bytes(8),
        (56).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,-4]}}',
        (55).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}' + bytes(12),
    ],
)
def test_broken_files_are_refused_and_none_is_read_beyond_its_end(tmp_path: Path, raw: bytes) -> None:
    write_peft(tmp_path)
    (tmp_path / WEIGHTS_FILE).write_bytes(raw)
    with pytest.raises(AdapterRejected):
        inspect(tmp_path, BASE, rank_limit=64)


def test_files_that_are_cut_or_missing_are_refused(tmp_path: Path) -> None:
    write_peft(tmp_path)
    whole = (tmp_path / WEIGHTS_FILE).read_bytes()
    for raw in (whole[:-1], whole + b"x"):
        (tmp_path / WEIGHTS_FILE).write_bytes(raw)
        with pytest.raises(AdapterRejected, match="shorter or longer"):
            inspect(tmp_path, BASE, rank_limit=64)
    (tmp_path / CONFIG_FILE).unlink()
    with pytest.raises(AdapterRejected, match="missing"):
        inspect(tmp_path, BASE, rank_limit=64)


def test_bfloat16_is_read_as_bits(tmp_path: Path) -> None:
    write_peft(tmp_path)
    names = {f"{FIRST}.lora_A.weight": (8, 576), f"{FIRST}.lora_B.weight": (192, 8)}
    write_safetensors(
        tmp_path / WEIGHTS_FILE, {name: np.zeros((r, c // 2), np.float32) for name, (r, c) in names.items()}
    )
    raw = (tmp_path / WEIGHTS_FILE).read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    for name, shape in names.items():
        header[name] |= {"dtype": "BF16", "shape": list(shape)}
    text = json.dumps(header).encode()
    whole = len(text).to_bytes(8, "little") + text + raw[8 + length :]
    (tmp_path / WEIGHTS_FILE).write_bytes(whole)
    assert inspect(tmp_path, BASE, rank_limit=16).rank == 8
    (tmp_path / WEIGHTS_FILE).write_bytes(whole[:-2] + b"\x80\x7f")  # infinite
    with pytest.raises(AdapterRejected, match="finite"):
        inspect(tmp_path, BASE, rank_limit=16)
