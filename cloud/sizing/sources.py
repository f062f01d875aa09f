"""Finds the `config.json` of the model that is to be planned: a folder, a file, a prepared checkpoint, a known name."""

from __future__ import annotations

import contextlib
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import orjson

from shared.errors import ModelCorrupt, NotFound

_LIMIT_BYTES = 1024 * 1024
_NAME_CHARS = 128


def _family(kind: str, layers: int, heads: int, kv_heads: int, head_length: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_length,
        "hidden_size": heads * head_length,
    } | more


_LLAMA_3: dict[str, Any] = {"vocab_size": 128_256, "max_position_embeddings": 131_072}
_QWEN_2: dict[str, Any] = {"vocab_size": 152_064, "max_position_embeddings": 32_768}
PUBLISHED: dict[str, dict[str, Any]] = {
    "smollm2-135m-instruct": _family("llama", 30, 9, 3, 64, intermediate_size=1_536, tie_word_embeddings=True)
    | {"vocab_size": 49_152, "max_position_embeddings": 8_192},
    "llama-3.1-8b-instruct": _family("llama", 32, 32, 8, 128, intermediate_size=14_336) | _LLAMA_3,
    "llama-3.1-70b-instruct": _family("llama", 80, 64, 8, 128, intermediate_size=28_672) | _LLAMA_3,
    "mistral-7b-instruct-v0.3": _family("mistral", 32, 32, 8, 128, intermediate_size=14_336)
    | {"vocab_size": 32_768, "max_position_embeddings": 32_768},
    "qwen2.5-7b-instruct": _family("qwen2", 28, 28, 4, 128, intermediate_size=18_944) | _QWEN_2,
    "qwen2.5-72b-instruct": _family("qwen2", 80, 64, 8, 128, intermediate_size=29_568) | _QWEN_2,
}
"""What the `config.json` of often used models says, so that they can be planned before anything is downloaded."""


def config_of(model: str, checkpoints: Path) -> dict[str, Any]:
    """The `config.json` for `model`; names may carry their owner (`meta-llama/…`), in any letter case.

    Raises:
        NotFound: nothing of that name, with the nearest known one.
        ModelCorrupt: the file is no JSON object.
    """
    path = Path(model)
    with contextlib.suppress(OSError, ValueError):  # a name that no file can have
        if path.is_dir():
            return _read(path / "config.json")
        if path.is_file():
            return _read(path)
    name = model.rpartition("/")[2].lower()
    prepared = sorted(checkpoints.glob(f"{name}-[0-9a-f]*/config.json")) if _is_plain(name) else []
    if prepared:
        return _read(prepared[-1])
    known = PUBLISHED.get(name)
    if known is None:
        near = get_close_matches(name, PUBLISHED, n=1, cutoff=0.4)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise NotFound(
            f"There is no checkpoint folder and no known model of that name; known are {', '.join(PUBLISHED)}.{hint}",
            param="model",
        )
    return known


def _is_plain(name: str) -> bool:
    return 0 < len(name) <= _NAME_CHARS and not set(name) & set("*?[]\0") and not name.startswith(".")


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            document = orjson.loads(file.read(_LIMIT_BYTES + 1))
    except (OSError, orjson.JSONDecodeError):
        raise ModelCorrupt(f"{path} cannot be read as a config.json.", param="model") from None
    if not isinstance(document, dict):
        raise ModelCorrupt(f"{path} holds no JSON object.", param="model")
    return document
