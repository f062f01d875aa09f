"""Makes a PEFT folder of an adapter that the edge tier registered: the very weights, so both tiers report one digest.

llama.cpp's converters reorder the rows of the query and key matrices of Llama models, pairing each rotated element
with its partner (`LlamaModel.permute` in `convert_hf_to_gguf.py`); of an adapter that reorders side B. It is undone.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cloud.adapters.manifest import Digest
from cloud.adapters.peft import CONFIG_FILE, WEIGHTS_FILE, AdapterRejected
from cloud.sizing.geometry import Geometry
from shared.errors import DigestMismatch, ModelCorrupt, NotFound

_FILE = "adapter.gguf"
_MODULES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_SIDES = {"lora_a": "lora_A", "lora_b": "lora_B"}
_PERMUTED = frozenset({"llama"})

Weights = NDArray[np.float32]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=1)


class EdgeAdapter(BaseModel):
    """The fields of the edge tier's adapter manifest (version 1) that matter here."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int
    base_digest: Digest
    file: _File

    @property
    def digest(self) -> str:
        """Identity of the weights on both tiers."""
        return f"sha256:{self.file.sha256}"


def edge_adapter(root: Path, base: str, name: str) -> tuple[EdgeAdapter, Path]:
    """The current version of `base:name` in the edge tier's store at `root`: its manifest and its checked file.

    Raises:
        NotFound: it is not registered there.
        ModelCorrupt: its manifest cannot be read.
        DigestMismatch: the file is not the one that was registered.
    """
    folder = root / base / name / "current"
    if not folder.exists():
        raise NotFound(f"There is no adapter {base}:{name}. Run: isthmus edge adapters register", param="name")
    try:
        manifest = EdgeAdapter.model_validate_json((folder / "manifest.json").read_bytes())
        path = folder.resolve() / _FILE
        found = _hashed(path)
    except (OSError, ValidationError):
        raise ModelCorrupt("The manifest of this adapter cannot be read.", param="manifest") from None
    if manifest.version != 1 or found != manifest.file.sha256:
        raise DigestMismatch("The adapter's file is not the one that was registered.", param="digest")
    return manifest, path


def convert(source: Path, target: Path, base: Geometry) -> None:
    """Write the GGUF adapter `source` as a PEFT folder `target`, which must exist.

    Raises:
        AdapterRejected: it adapts what PEFT names cannot say.
    """
    from gguf import GGUFReader, dequantize  # noqa: PLC0415 - heavy, and only this command needs them
    from safetensors.numpy import save_file  # noqa: PLC0415

    reader = GGUFReader(source)
    architecture = _field(reader, "general.architecture")
    tensors: dict[str, Weights] = {}
    for tensor in reader.tensors:
        weights = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        name, module, side = _peft_name(tensor.name)
        if side == "lora_b" and architecture in _PERMUTED and module in ("attn_q", "attn_k"):
            weights = restored(weights, base.heads if module == "attn_q" else base.kv_heads)
        tensors[name] = weights
    ranks = {weights.shape[0] for name, weights in tensors.items() if ".lora_A." in name}
    rank, alpha = max(ranks), float(_field(reader, "adapter.lora.alpha"))
    if len(ranks) > 1:
        raise AdapterRejected(
            "The adapter's modules have different ranks, which PEFT scales differently.", param="rank"
        )
    save_file(tensors, target / WEIGHTS_FILE)
    targets = sorted({name.split(".")[-3] for name in tensors})
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "target_modules": targets, "bias": "none"}
    (target / CONFIG_FILE).write_bytes(orjson.dumps(config | {"task_type": "CAUSAL_LM"}))


def restored(weights: Weights, heads: int) -> Weights:
    """Rows in the order of Hugging Face. `weights`: heads x head length rows; within a head llama.cpp alternates the
    halves that are rotated together."""
    rows = weights.shape[0]
    half = rows // heads // 2
    return weights.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(rows, -1)


def _peft_name(name: str) -> tuple[str, str, str]:
    """The name in PEFT, the module and the side of the GGUF tensor `name` (`blk.N.MODULE.weight.lora_a`)."""
    parts = name.split(".")
    if len(parts) != 5 or parts[0] != "blk" or parts[2] not in _MODULES or parts[4] not in _SIDES:
        raise AdapterRejected("The adapter changes a tensor that cannot be adapted here.", param=name[:200])
    module = _MODULES[parts[2]]
    return f"base_model.model.model.layers.{int(parts[1])}.{module}.{_SIDES[parts[4]]}.weight", parts[2], parts[4]


def _field(reader: Any, key: str) -> Any:
    field = reader.fields.get(key)
    if field is None:
        raise AdapterRejected(f"The adapter's header has no {key}.", param=key)
    return field.contents()


def _hashed(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
