"""Every format is recognised, read and verified; every broken package is refused with the field at fault."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge.packages.formats.entry import Format, Inspection
from edge.packages.formats.files import opened_candidate
from edge.packages.formats.registry import FORMATS, format_of, require_served
from edge.packages.library import Library
from edge.packages.package import Package
from edge.packages.parity import identity
from shared.errors import DigestMismatch, ModelCorrupt, TrustError, UnsupportedArchitecture
from shared.testing.models import write_gguf
from shared.tokenizer import differences
from tests.edge.packages.formats import builders as build


def read(path: Path) -> tuple[Format, Inspection]:
    with opened_candidate(path) as files:
        found = format_of(files)
        return found, found.inspect(files)


def refusal(path: Path) -> TrustError:
    with pytest.raises(TrustError) as refused:
        read(path)
    assert refused.value.param
    return refused.value


def wrote(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


MAKERS: dict[str, Callable[[Path], Path]] = {
    "gguf": lambda folder: write_gguf(folder / "m.gguf"),
    "onnx": lambda folder: build.onnx_package(folder / "onnx"),
    "executorch": lambda folder: wrote(
        folder / "m.pte", build.pte(build.executorch_program(segments=((0, 16),)), bytes(16))
    ),
    "coreml": lambda folder: build.mlpackage(folder / "m.mlpackage"),
    "mlc": lambda folder: build.mlc_package(folder / "mlc"),
}


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_each_entry_of_the_table_recognises_its_own_alone(name: str, tmp_path: Path) -> None:
    path = MAKERS[name](tmp_path)
    with opened_candidate(path) as files:
        assert [entry.name for entry in FORMATS.values() if entry.recognise(files)] == [name]
    found, _ = read(path)
    assert found.name == name
    assert found.runtime.remedy


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_looking_at_a_package_loads_no_runtime(name: str, tmp_path: Path) -> None:
    before = set(sys.modules)
    read(MAKERS[name](tmp_path))
    loaded = {module.partition(".")[0] for module in set(sys.modules) - before}
    assert not loaded & {entry.runtime.module for entry in FORMATS.values()}


@pytest.mark.parametrize("name", ["executorch", "coreml", "mlc"])
def test_what_runs_elsewhere_is_not_installed(name: str, tmp_path: Path) -> None:
    path = MAKERS[name](tmp_path)
    with pytest.raises(UnsupportedArchitecture, match=r"no engine for it"):
        Library(tmp_path / "models").import_path(path, "other")
    assert not FORMATS[name].runtime.serves
    assert Library(tmp_path / "models").installed() == ()


def test_unknown_things_are_named(tmp_path: Path) -> None:
    assert refusal(wrote(tmp_path / "x.bin", b"something")).message.startswith("This is no package of a known format")
    (tmp_path / "folder").mkdir()
    assert refusal(tmp_path / "folder").param == "format"


def test_links_are_not_followed(tmp_path: Path) -> None:
    folder = build.onnx_package(tmp_path / "onnx")
    (folder / "tokenizer.json").rename(tmp_path / "outside.json")
    (folder / "tokenizer.json").symlink_to(tmp_path / "outside.json")
    assert refusal(folder).param == "tokenizer.json"


def test_require_served_lets_the_others_pass() -> None:
    for name in ("gguf", "onnx"):
        require_served(FORMATS[name])


# ONNX.


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


# ExecuTorch.


def test_executorch_facts(tmp_path: Path) -> None:
    program = build.executorch_program(methods=("forward", "prefill"), segments=((0, 16), (16, 8)))
    _, inspection = read(wrote(tmp_path / "m.pte", build.pte(program, bytes(24))))
    assert inspection.details["methods"] == ("forward", "prefill")
    assert inspection.details["operators"] == ("aten::add",)
    assert inspection.details["delegates"] == ("XnnpackBackend",)
    assert inspection.details["segments"] == 2
    _, old = read(wrote(tmp_path / "old.pte", build.pte(build.executorch_program(), header=False)))
    assert old.details["methods"] == ("forward",)


@pytest.mark.parametrize(
    ("data", "param"),
    [
        (build.pte(build.executorch_program(), program_size=1 << 40), "program_size"),
        (build.pte(build.executorch_program(), program_size=0), "program_size"),
        (build.pte(build.executorch_program(), bytes(8), segment_base=1 << 40), "segment_base_offset"),
        (build.pte(build.executorch_program(), bytes(8), segment_base=8), "segment_base_offset"),
        (build.pte(build.executorch_program(), length=4), "header_length"),
        (build.pte(build.executorch_program(segments=((0, 64),)), bytes(16)), "segments.0"),
        (build.pte(build.executorch_program(segments=((0, 8),))), "segments.0"),
        (build.pte(build.executorch_program(methods=())), "execution_plan"),
        (b"\xff\xff\xff\x7fET12" + bytes(64), "program"),
        (build.pte(build.executorch_program())[:20], "eh00"),
    ],
)
def test_executorch_files_that_are_broken(tmp_path: Path, data: bytes, param: str) -> None:
    error = refusal(wrote(tmp_path / "m.pte", data))
    assert error.param == param
    assert "At byte" in error.message or param == "execution_plan"


def test_an_executorch_file_cut_anywhere_is_refused_or_read(tmp_path: Path) -> None:
    data = build.pte(build.executorch_program(segments=((0, 16),)), bytes(16))
    for size in range(8, len(data)):
        with pytest.raises(TrustError):
            read(wrote(tmp_path / "m.pte", data[:size]))


# Core ML.


def test_coreml_facts(tmp_path: Path) -> None:
    _, inspection = read(MAKERS["coreml"](tmp_path))
    assert inspection.details["specification_version"] == 9
    assert inspection.details["kind"] == "ML program"
    assert inspection.details["functions"] == ("main",)
    assert (inspection.details["inputs"], inspection.details["state"]) == (("input_ids",), ("cache",))
    assert inspection.details["weight_blobs"] == 2


@pytest.mark.parametrize(
    ("manifest", "param"),
    [
        ({}, "rootModelIdentifier"),
        ({"itemInfoEntries": {"A": {"path": "x"}}, "rootModelIdentifier": "B"}, "rootModelIdentifier"),
        ({"itemInfoEntries": {"A": {"path": "../../x.mlmodel"}}, "rootModelIdentifier": "A"}, "A"),
        ({"itemInfoEntries": {"A": {"path": "/x.mlmodel"}}, "rootModelIdentifier": "A"}, "A"),
        ({"itemInfoEntries": {"A": {"path": "gone.mlmodel"}}, "rootModelIdentifier": "A"}, "Data/gone.mlmodel"),
    ],
)
def test_coreml_items_that_lead_nowhere(tmp_path: Path, manifest: dict[str, Any], param: str) -> None:
    assert refusal(build.mlpackage(tmp_path / "m.mlpackage", manifest=manifest)).param == param


@pytest.mark.parametrize(
    ("model", "param"),
    [
        (build.coreml_model(kind=555), "customModel"),
        (build.coreml_model(version=0), "specificationVersion"),
        (build.coreml_model()[:-2], "Data/com.apple.CoreML/model.mlmodel"),
    ],
)
def test_coreml_models_that_are_refused(tmp_path: Path, model: bytes, param: str) -> None:
    assert refusal(build.mlpackage(tmp_path / "m.mlpackage", model=model)).param == param


@pytest.mark.parametrize("damage", ["short", "mark", "count", "version"])
def test_coreml_weights_that_are_broken(tmp_path: Path, damage: str) -> None:
    folder = build.mlpackage(tmp_path / "m.mlpackage")
    path = folder / "Data/com.apple.CoreML/weights/weight.bin"
    data = bytearray(path.read_bytes())
    if damage == "short":
        del data[150:]
    elif damage == "mark":
        data[64] ^= 1
    else:
        data[0 if damage == "count" else 4] = 9
    path.write_bytes(data)
    assert str(refusal(folder).param).endswith("weight.bin")


# MLC.


@pytest.mark.parametrize("cache", ["tensor-cache.json", "ndarray-cache.json"])
def test_mlc_facts(tmp_path: Path, cache: str) -> None:
    _, inspection = read(build.mlc_package(tmp_path / "mlc", cache=cache))
    assert inspection.details["architecture"] == "llama"
    assert inspection.details["quantisation"] == "q4f16_1"
    assert (inspection.details["shards"], inspection.details["tensors"]) == (1, 2)


def record(offset: int, size: int = 64, **fields: Any) -> dict[str, Any]:
    return {"name": "a", "shape": [16], "dtype": "float32", "nbytes": size, "byteOffset": offset} | fields


@pytest.mark.parametrize(
    "shard",
    [
        {"dataPath": "../params_shard_0.bin"},
        {"dataPath": "params_shard_7.bin"},
        {"nbytes": 95},
        {"records": [record(0)]},
        {"records": [record(0), record(32, 64)]},
        {"records": [record(32)]},
        {"records": [record(0, 96)]},
        {"records": [record(0, dtype="object")]},
        {"records": [record(0, shape=[-16])]},
    ],
)
def test_mlc_records_that_do_not_fit(tmp_path: Path, shard: dict[str, Any]) -> None:
    assert isinstance(refusal(build.mlc_package(tmp_path / "mlc", shard=shard)), ModelCorrupt)


def test_mlc_bytes_that_changed(tmp_path: Path) -> None:
    folder = build.mlc_package(tmp_path / "mlc")
    with (folder / "params_shard_0.bin").open("r+b") as file:
        file.write(b"\xff")
    assert isinstance(refusal(folder), DigestMismatch)


def test_mlc_brings_no_library(tmp_path: Path) -> None:
    folder = build.mlc_package(tmp_path / "mlc")
    (folder / "model.so").write_bytes(b"\x7fELF")
    assert refusal(folder).param == "model.so"


def test_too_many_files(tmp_path: Path) -> None:
    folder = build.mlc_package(tmp_path / "mlc")
    for index in range(600):
        (folder / f"f{index}").touch()
    assert refusal(folder).param == "files"


def test_a_pipe_in_a_package_does_not_block(tmp_path: Path) -> None:
    folder = build.mlc_package(tmp_path / "mlc")
    os.mkfifo(folder / "pipe")
    assert refusal(folder).param == "pipe"
