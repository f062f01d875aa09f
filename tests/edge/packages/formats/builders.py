"""Writes small packages of every format byte by byte, so that each field can be wrong on its own."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import flatbuffers


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def block(field: int, *parts: bytes | str) -> bytes:
    data = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
    return varint(field << 3 | 2) + varint(len(data)) + data


# ONNX.

GENAI_CONFIG: dict[str, Any] = {
    "model": {
        "type": "llama",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "context_length": 128,
        "vocab_size": 4,
        "decoder": {
            "session_options": {"log_id": "x", "provider_options": []},
            "filename": "model.onnx",
            "head_size": 8,
            "hidden_size": 16,
            "inputs": {
                "input_ids": "input_ids",
                "attention_mask": "attention_mask",
                "past_key_names": "past_key_values.%d.key",
                "past_value_names": "past_key_values.%d.value",
            },
            "outputs": {
                "logits": "logits",
                "present_key_names": "present.%d.key",
                "present_value_names": "present.%d.value",
            },
            "num_attention_heads": 2,
            "num_hidden_layers": 1,
            "num_key_value_heads": 1,
        },
    },
    "search": {"max_length": 128},
}
TOKENIZER: dict[str, Any] = {
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}},
    "added_tokens": [{"id": 3, "content": "<end>"}],
    "pre_tokenizer": {"type": "ByteLevel"},
}


def graph_input(name: str, element: int) -> bytes:
    return block(11, block(1, name), block(2, block(1, number(1, element))))


def external(name: str, *, dims: tuple[int, ...], element: int, **places: str) -> bytes:
    entries = [block(13, block(1, key), block(2, value)) for key, value in places.items()]
    return block(
        5, *(number(1, extent) for extent in dims), number(2, element), block(8, name), *entries, number(14, 1)
    )


def node(operator: str, *, domain: str = "", inputs: tuple[str, ...] = (), **attributes: int) -> bytes:
    stated = [block(5, block(1, name), number(3, value)) for name, value in attributes.items()]
    return block(1, *(block(1, each) for each in inputs), block(4, operator), block(7, domain), *stated)


def onnx_graph(*, element: int = 1, extra: bytes = b"", weights: bytes | None = None) -> bytes:
    """A graph with one quantised matrix of 4 x 32 and one norm, whose data lie in model.onnx.data."""
    if weights is None:
        weights = external("lm_head.weight_Q4", dims=(4, 1, 16), element=2, location="model.onnx.data", length="64")
        weights += external("norm.weight", dims=(16,), element=1, location="model.onnx.data", offset="64", length="64")
    inputs = [graph_input("input_ids", 7), graph_input("attention_mask", 7)]
    inputs += [graph_input(f"past_key_values.0.{kind}", element) for kind in ("key", "value")]
    matrix = node("MatMulNBits", domain="com.microsoft", inputs=("x", "lm_head.weight_Q4"), N=4, K=32, bits=4)
    return number(1, 10) + block(2, "test") + block(7, matrix, weights, *inputs, extra) + block(8, number(2, 21))


def onnx_package(
    folder: Path, *, config: dict[str, Any] | None = None, graph: bytes | None = None, tokenizer: Any = TOKENIZER
) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "genai_config.json").write_text(json.dumps(GENAI_CONFIG if config is None else config))
    (folder / "model.onnx").write_bytes(onnx_graph() if graph is None else graph)
    (folder / "model.onnx.data").write_bytes(bytes(128))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


# ExecuTorch.


def executorch_program(*, methods: tuple[str, ...] = ("forward",), segments: tuple[tuple[int, int], ...] = ()) -> bytes:
    """A Program as flatbuffer, without its extended header."""
    builder = flatbuffers.Builder(256)
    plans = []
    for method in methods:
        operator = _named(builder, "aten::add")
        delegate = _named(builder, "XnnpackBackend")
        operators, delegates = _vector(builder, [operator]), _vector(builder, [delegate])
        name = builder.CreateString(method)
        builder.StartObject(9)
        builder.PrependUOffsetTRelativeSlot(0, name, 0)
        builder.PrependUOffsetTRelativeSlot(6, operators, 0)
        builder.PrependUOffsetTRelativeSlot(7, delegates, 0)
        plans.append(builder.EndObject())
    described = []
    for offset, size in segments:
        builder.StartObject(2)
        builder.PrependUint64Slot(0, offset, 0)
        builder.PrependUint64Slot(1, size, 0)
        described.append(builder.EndObject())
    plan_vector, segment_vector = _vector(builder, plans), _vector(builder, described)
    builder.StartObject(8)
    builder.PrependUint32Slot(0, 1, 0)
    builder.PrependUOffsetTRelativeSlot(1, plan_vector, 0)
    builder.PrependUOffsetTRelativeSlot(4, segment_vector, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"ET12")
    return bytes(builder.Output())


def pte(program: bytes, data: bytes = b"", *, header: bool = True, **fields: int) -> bytes:
    """A whole file: the extended header is put between identifier and tables, as the exporter does."""
    if not header:
        return program
    shift = 32
    root = struct.unpack_from("<I", program)[0] + shift
    size = len(program) + shift
    stated = {"length": 24, "program_size": size, "segment_base": size if data else 0} | fields
    head = struct.pack("<I", root) + b"ET12eh00"
    head += struct.pack("<IQQ", stated["length"], stated["program_size"], stated["segment_base"])
    return head.ljust(8 + shift, b"\0") + program[8:] + data


def _named(builder: flatbuffers.Builder, name: str) -> int:
    text = builder.CreateString(name)
    builder.StartObject(3)
    builder.PrependUOffsetTRelativeSlot(0, text, 0)
    return int(builder.EndObject())


def _vector(builder: flatbuffers.Builder, offsets: list[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


# Core ML.


def weight_file(*sizes: int) -> bytes:
    data = struct.pack("<II", len(sizes), 2).ljust(64, b"\0")
    for size in sizes:
        at = len(data)
        data += struct.pack("<IIQQ", 0xDEADBEEF, 1, size, at + 64).ljust(64, b"\0")
        data += bytes(-(-size // 64) * 64)
    return data


def coreml_model(*, kind: int = 502, version: int = 9) -> bytes:
    feature = block(1, block(1, "input_ids"))
    state = block(13, block(1, "cache"))
    function = block(2, block(1, "main"), block(2, b""))
    return number(1, version) + block(2, feature, state) + block(kind, number(1, 1), function)


def mlpackage(folder: Path, *, manifest: dict[str, Any] | None = None, model: bytes | None = None) -> Path:
    data = folder / "Data" / "com.apple.CoreML"
    (data / "weights").mkdir(parents=True)
    items = {
        "A": {"name": "model.mlmodel", "path": "com.apple.CoreML/model.mlmodel"},
        "B": {"name": "weights", "path": "com.apple.CoreML/weights"},
    }
    stated = {"fileFormatVersion": "1.0.0", "itemInfoEntries": items, "rootModelIdentifier": "A"}
    (folder / "Manifest.json").write_text(json.dumps(stated if manifest is None else manifest))
    (data / "model.mlmodel").write_bytes(coreml_model() if model is None else model)
    (data / "weights" / "weight.bin").write_bytes(weight_file(100, 64))
    return folder


# MLC.


def mlc_package(folder: Path, *, shard: dict[str, Any] | None = None, cache: str = "tensor-cache.json") -> Path:
    folder.mkdir(exist_ok=True)
    data = bytes(range(96))
    config = {
        "model_type": "llama",
        "quantization": "q4f16_1",
        "context_window_size": 2048,
        "vocab_size": 100,
        "tokenizer_files": ["tokenizer.json"],
        "conv_template": {},
    }
    described = {
        "dataPath": "params_shard_0.bin",
        "format": "raw-shard",
        "nbytes": len(data),
        "md5sum": hashlib.md5(data).hexdigest(),
        "records": [
            {"name": "a", "shape": [16], "dtype": "float32", "format": "f32", "nbytes": 64, "byteOffset": 0},
            {"name": "b", "shape": [4, 4], "dtype": "float16", "format": "raw", "nbytes": 32, "byteOffset": 64},
        ],
    } | (shard or {})
    (folder / "mlc-chat-config.json").write_text(json.dumps(config))
    (folder / cache).write_text(json.dumps({"metadata": {}, "records": [described]}))
    (folder / "params_shard_0.bin").write_bytes(data)
    (folder / "tokenizer.json").write_text("{}")
    return folder
