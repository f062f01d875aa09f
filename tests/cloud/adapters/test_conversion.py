"""Adapters of the edge tier as PEFT folders: the same weights under other names, rows in their first order."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from cloud.adapters.conversion import _peft_name, convert, edge_adapter, restored
from cloud.adapters.peft import AdapterRejected, inspect
from shared.errors import DigestMismatch, ModelCorrupt, NotFound
from tests.cloud.adapters.peft_files import BASE


def permuted(weights: np.ndarray, heads: int) -> np.ndarray:
    """As `LlamaModel.permute` of llama.cpp's `convert_hf_to_gguf.py` does it."""
    rows = weights.shape[0]
    return weights.reshape(heads, 2, rows // heads // 2, *weights.shape[1:]).swapaxes(1, 2).reshape(weights.shape)


def test_the_order_of_rows_is_restored() -> None:
    weights = np.arange(9 * 64 * 4, dtype=np.float32).reshape(576, 4)
    changed = permuted(weights, 9)
    assert not np.array_equal(changed, weights)
    assert np.array_equal(restored(changed, 9), weights)


def write_gguf_adapter(path: Path, *, alpha: float = 16.0, module: str = "attn_q", rank: int = 8) -> np.ndarray:
    """An adapter of one matrix as llama.cpp's converter writes it; returns side B as it was before."""
    import gguf

    chance = np.random.default_rng(0)
    side_a = chance.normal(size=(rank, 576)).astype(np.float32)
    side_b = chance.normal(size=(576, rank)).astype(np.float32)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", alpha)
    writer.add_tensor(f"blk.0.{module}.weight.lora_a", side_a)
    writer.add_tensor(f"blk.0.{module}.weight.lora_b", permuted(side_b, 9))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return side_b


def test_an_edge_adapter_becomes_a_peft_folder_that_is_served(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    side_b = write_gguf_adapter(tmp_path / "a.gguf")
    target = tmp_path / "peft"
    target.mkdir()
    convert(tmp_path / "a.gguf", target, BASE)
    facts = inspect(target, BASE, rank_limit=16)
    assert (facts.rank, facts.alpha, facts.modules) == (8, 16.0, 1)
    found = safetensors.load_file(target / "adapter_model.safetensors")
    assert np.array_equal(found["base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"], side_b)


@pytest.mark.parametrize("name", ["token_embd.weight.lora_a", "blk.0.attn_norm.weight.lora_a", "blk.0.attn_q.weight"])
def test_what_has_no_name_in_peft_is_refused(name: str) -> None:
    with pytest.raises(AdapterRejected):
        _peft_name(name)


def test_the_edge_adapter_is_found_and_its_file_checked(tmp_path: Path) -> None:
    """Digest parity: both tiers report the sha256 of the registered file."""
    with pytest.raises(NotFound):
        edge_adapter(tmp_path, "smol", "tone")
    folder = tmp_path / "smol" / "tone" / "versions" / "1"
    folder.mkdir(parents=True)
    (folder.parent.parent / "current").symlink_to("versions/1")
    (folder / "adapter.gguf").write_bytes(b"weights")
    sha256 = hashlib.sha256(b"weights").hexdigest()
    document = {"version": 1, "base_digest": "sha256:" + "a" * 64, "file": {"sha256": sha256, "size_bytes": 7}}
    (folder / "manifest.json").write_text(json.dumps(document))
    found, path = edge_adapter(tmp_path, "smol", "tone")
    assert (found.digest, path.read_bytes()) == (f"sha256:{sha256}", b"weights")
    (folder / "adapter.gguf").write_bytes(b"changed")
    with pytest.raises(DigestMismatch):
        edge_adapter(tmp_path, "smol", "tone")
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(ModelCorrupt):
        edge_adapter(tmp_path, "smol", "tone")
