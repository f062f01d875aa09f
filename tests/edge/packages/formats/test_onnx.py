"""ONNX packages: facts, a configuration allowed key by key, graphs that lead outside."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from edge.packages.package import Package
from edge.packages.parity import identity
from shared.errors import ModelCorrupt, TrustError
from shared.tokenizer import differences
from tests.edge.packages.formats import builders as build
from tests.edge.packages.formats.reading import MAKERS, read, refusal


def test_onnx_facts(tmp_path: Path) -> None:
    _, inspection = read(MAKERS["onnx"](tmp_path))
    model = inspection.model
    assert model is not None
    assert (model.format, model.architecture, model.quantisation, model.kv_element) == ("onnx", "llama", "INT4", "f32")
    assert model.parameters == 4 * 32 + 16
    assert model.tokenizer.tokens == 4
    assert model.tokenizer.special_ids == {"bos": 1, "eos": 2}
    assert model.geometry.kv_heads_by_layer == (1,)
    assert inspection.details["opset"] == 21


def changed(path: str, value: Any) -> dict[str, Any]:
    """The configuration with one key changed or added."""
    config = copy.deepcopy(build.GENAI_CONFIG)
    *parents, last = path.split(".")
    holder = config
    for parent in parents:
        holder = holder[parent]
    holder[last] = value
    return config


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("model.decoder.session_options.custom_ops_library", "evil.so"),
        ("model.decoder.session_options.provider_options", [{"cuda": {}}]),
        ("model.decoder.session_options.provider_options", [{"cpu": {"shared_lib_path": "evil.so"}}]),
        ("model.decoder.session_options.config_entries", {"session.load_model_format": "ORT"}),
        ("model.decoder.session_options.graph_optimization_level", "x"),
        ("model.decoder.filename", "../model.onnx"),
        ("model.decoder.filename", "/tmp/model.onnx"),
        ("model.decoder.filename", "sub/model.onnx"),
        ("model.decoder.filename", "model..onnx"),
        ("model.decoder.filename", "model.so"),
        ("model.decoder.pipeline", []),
        ("model.decoder.head_size", "8"),
        ("model.decoder.num_hidden_layers", 0),
        ("model.decoder.num_key_value_heads", 3),
        ("model.encoder", {}),
        ("model.vision", {}),
        ("model.type", "whisper"),
        ("model.vocab_size", 3),
        ("model.eos_token_id", 99),
        ("model.eos_token_id", []),
        ("model.context_length", 0),
        ("search.custom", 1),
        ("extra", 1),
        ("model.decoder.inputs.past_key_names", "past.key"),
        ("model.decoder.num_hidden_layers", 2),
    ],
)
def test_a_configuration_is_allowed_key_by_key(tmp_path: Path, path: str, value: Any) -> None:
    error = refusal(build.onnx_package(tmp_path / "onnx", config=changed(path, value)))
    assert isinstance(error, ModelCorrupt)
    assert "evil" not in error.message


def external(**places: str) -> bytes:
    return build.external("w", dims=(16,), element=1, **places)


@pytest.mark.parametrize(
    ("graph", "param"),
    [
        (build.onnx_graph(weights=external(location="../secret", length="64")), "external_data.location"),
        (build.onnx_graph(weights=external(location="/etc/passwd", length="64")), "external_data.location"),
        (build.onnx_graph(weights=external(location="*/_ORT_MEM_ADDR_/*", length="64")), "external_data.location"),
        (build.onnx_graph(weights=external(location="missing.data", length="64")), "missing.data"),
        (build.onnx_graph(weights=external(location="model.onnx.data", offset="100")), "external_data.length"),
        (build.onnx_graph(weights=external(location="model.onnx.data", offset="-8")), "external_data.length"),
        (build.onnx_graph(weights=external(location="model.onnx.data", length="60")), "external_data.length"),
        (build.onnx_graph(weights=external(location="model.onnx.data", offset="x")), "external_data.offset"),
        (build.onnx_graph(extra=build.node("Custom", domain="com.evil")), "domain"),
        (build.onnx_graph(extra=build.node("EPContext", domain="com.microsoft")), "op_type"),
        (build.onnx_graph(element=2), "past_key_names"),
        (build.onnx_graph(element=99), "data_type"),
        (build.onnx_graph(extra=build.block(15, b"")), "sparse_initializer"),
        (build.onnx_graph() + build.block(25, b""), "model.onnx"),
        (build.onnx_graph() + build.block(8, build.block(1, "com.evil"), build.number(2, 1)), "domain"),
        (build.onnx_graph()[:-3], "model.onnx"),
        (b"", "model.onnx"),
        (b"\xff" * 64, "model.onnx"),
        (b"\x0b\x0c", "model.onnx"),
    ],
)
def test_a_graph_that_leads_outside_or_is_broken(tmp_path: Path, graph: bytes, param: str) -> None:
    assert refusal(build.onnx_package(tmp_path / "onnx", graph=graph)).param == param


def test_a_graph_inside_a_graph_is_judged_too(tmp_path: Path) -> None:
    inner = build.node("Custom", domain="com.evil")
    outer = build.block(1, build.block(4, "If"), build.block(5, build.block(1, "then_branch"), build.block(6, inner)))
    assert refusal(build.onnx_package(tmp_path / "a", graph=build.onnx_graph(extra=outer))).param == "domain"
    deep = b""
    for _ in range(12):
        deep = build.block(1, build.block(4, "If"), build.block(5, build.block(1, "b"), build.block(6, deep)))
    assert refusal(build.onnx_package(tmp_path / "b", graph=build.onnx_graph(extra=deep))).param == "graph"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("libcustom.so", b"x"),
        ("libcustom.so.1", b"x"),
        ("README.md", b"\x7fELF\x02"),
        ("LICENSE", b"MZ\x90"),
        ("merges.txt", b"\xcf\xfa\xed\xfe"),
        ("notes.txt", b"text"),
        ("run.py", b"print()"),
    ],
)
def test_files_that_do_not_belong_there(tmp_path: Path, name: str, content: bytes) -> None:
    folder = build.onnx_package(tmp_path / "onnx")
    (folder / name).write_bytes(content)
    assert refusal(folder).param == name


@pytest.mark.parametrize(
    "tokenizer",
    [
        [],
        {"model": {}},
        {"model": {"vocab": {"a": 0, "b": 5}}},
        {"model": {"vocab": {"a": 0, "b": "1"}}},
        {"model": {"vocab": 7}},
    ],
)
def test_a_tokenizer_without_a_vocabulary(tmp_path: Path, tokenizer: Any) -> None:
    assert isinstance(refusal(build.onnx_package(tmp_path / "onnx", tokenizer=tokenizer)), ModelCorrupt)


@pytest.mark.parametrize("name", ["model.onnx.data", "tokenizer.json", "model.onnx"])
def test_a_file_that_is_missing(tmp_path: Path, name: str) -> None:
    folder = build.onnx_package(tmp_path / "onnx")
    (folder / name).unlink()
    assert refusal(folder).param == name


def test_random_changes_of_a_graph_never_end_in_anything_else_than_a_refusal(tmp_path: Path) -> None:
    import random

    choose, graph = random.Random(5), build.onnx_graph()
    folder = build.onnx_package(tmp_path / "onnx")
    refused = 0
    for _ in range(600):
        raw = bytearray(graph)
        for _ in range(choose.randint(1, 3)):
            raw[choose.randrange(len(raw))] = choose.randrange(256)
        (folder / "model.onnx").write_bytes(raw)
        try:
            read(folder)
        except TrustError:
            refused += 1
    assert refused > 100


@pytest.mark.timeout(600)  # the package may have to be built first
def test_tokenizers_of_two_formats_are_compared_by_one_fingerprint(
    onnx_package: Package, installed_model: Package
) -> None:
    """TK-01: one tokenizer in `tokenizer.json`, which came through a checkpoint, and in the GGUF header it began as."""
    onnx, gguf = (package.manifest.model.tokenizer for package in (onnx_package, installed_model))
    assert identity(onnx).fingerprint == identity(gguf).fingerprint
    assert differences(identity(onnx), identity(gguf)) == ()
    assert (onnx.pre, onnx.findings) == ("smollm", ())
    assert onnx.tokens_sha256 == gguf.tokens_sha256
    assert onnx.tokens == gguf.tokens
    assert onnx_package.manifest.model.parameters == installed_model.manifest.model.parameters
    assert onnx_package.manifest.geometry == installed_model.manifest.geometry
