"""ONNX for onnxruntime-genai: a folder with configuration, graph, weights and tokenizer."""

from __future__ import annotations

import re
from typing import Literal

from edge.memory.geometry import ModelGeometry
from edge.packages.formats.entry import Inspection, Scalar
from edge.packages.formats.files import Files, refuse_native_code
from edge.packages.formats.json_files import read_object, validated
from edge.packages.formats.onnx_config import CONFIG_FILE, GenaiConfig
from edge.packages.formats.onnx_graph import Graph, element_of, read_graph
from edge.packages.formats.tokenizer_json import TEMPLATE_FILE, TOKENIZER_FILE, tokenizer_facts
from edge.packages.manifest import ModelFacts, RopeFacts, TokenizerFacts
from shared.errors import ModelCorrupt

ENGINE_FILES = frozenset({TOKENIZER_FILE, TEMPLATE_FILE, "tokenizer_config.json", "special_tokens_map.json",
                          "added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model"})  # fmt: skip
"""Files that the engine may read, beside the graph and its data."""
_OTHER_FILES = frozenset({CONFIG_FILE, "config.json", "generation_config.json", "README.md", "LICENSE", "NOTICE"})
_ROLES = (
    (re.compile(r"embed_tokens"), "embedding"),
    (re.compile(r"^lm_head"), "head"),
    (re.compile(r"(qkv|q|k|v)_proj"), "qkv"),
    (re.compile(r"attn\.o_proj"), "attention_output"),
    (re.compile(r"mlp\."), "feed_forward"),
)
_HELPERS = re.compile(r"(_scales|_zero_points|_zp|cos_cache|sin_cache)$")
"""Weights that carry no parameters: scales of quantised blocks, tables of positions."""


def recognise(files: Files) -> bool:
    """A folder with the runtime's configuration."""
    return CONFIG_FILE in files


def inspect(files: Files) -> Inspection:
    """Verify the whole structure.

    Raises:
        ModelCorrupt: a key, file, operator or weight is not allowed, missing or contradictory.
    """
    refuse_native_code(files)
    config = config_of(files)
    decoder = config.model.decoder
    graph = read_graph(files, decoder.filename)
    allowed = ENGINE_FILES | _OTHER_FILES | graph.data_files | {decoder.filename}
    for name in files.names:
        if name not in allowed:
            raise ModelCorrupt(f"{name} is no file of an ONNX package.", param=name)
    tokenizer = tokenizer_facts(files, _special_ids(config))
    geometry = _geometry(config, graph)
    _require_agreement(config, graph, tokenizer)
    tensor_bytes = _tensor_bytes(graph)
    model = ModelFacts(
        format="onnx",
        architecture=config.model.type,
        quantisation=_quantisation(graph),
        parameters=_parameters(graph),
        weight_bytes={role: sum(types.values()) for role, types in tensor_bytes.items()},
        tensor_bytes=tensor_bytes,
        geometry=geometry,
        tokenizer=tokenizer,
        rope=RopeFacts(),
        trained_context_tokens=config.model.context_length,
        kv_element=kv_element(config, graph),
    )
    details: dict[str, Scalar | tuple[Scalar, ...]] = {
        "opset": graph.opset,
        "producer": graph.producer,
        "operators": tuple(sorted(graph.operators)),
    }
    return Inspection(details=details, model=model)


def config_of(files: Files) -> GenaiConfig:
    """The checked configuration; raises ModelCorrupt."""
    return validated(GenaiConfig, read_object(files, CONFIG_FILE), CONFIG_FILE)


def engine_files(files: Files) -> tuple[str, ...]:
    """The files that the engine is given beside its configuration, after `inspect`."""
    graph_file = config_of(files).model.decoder.filename
    data = read_graph(files, graph_file).data_files
    return tuple(name for name in files.names if name == graph_file or name in data or name in ENGINE_FILES)


def kv_element(config: GenaiConfig, graph: Graph) -> Literal["f32", "f16"]:
    """Element type of keys and values, which the graph fixes.

    Raises:
        ModelCorrupt: an input for keys or values is missing, or its type is none that is run.
    """
    inputs = config.model.decoder.inputs
    kinds = set()
    for pattern in (inputs.past_key_names, inputs.past_value_names):
        for layer in range(config.model.decoder.num_hidden_layers):
            name = pattern.replace("%d", str(layer))
            if name not in graph.inputs:
                raise ModelCorrupt(f"The graph has no input {name}.", param="num_hidden_layers")
            kinds.add(element_of(graph.inputs[name])[0].lower())
    if kinds == {"f32"}:
        return "f32"
    if kinds == {"f16"}:
        return "f16"
    raise ModelCorrupt("Keys and values are neither 32 nor 16 bit floats.", param="past_key_names")


def _special_ids(config: GenaiConfig) -> dict[str, int]:
    model = config.model
    stated = {"bos": model.bos_token_id, "eos": model.end_tokens[0], "padding": model.pad_token_id}
    return {name: token for name, token in stated.items() if token is not None}


def _geometry(config: GenaiConfig, graph: Graph) -> ModelGeometry:
    model, decoder = config.model, config.model.decoder
    widths = [rows for name, (rows, _, _) in graph.matrices.items() if ".mlp." in name]
    return ModelGeometry(
        architecture=model.type,
        embedding_length=decoder.hidden_size,
        feed_forward_length=max(widths, default=4 * decoder.hidden_size),
        heads=decoder.num_attention_heads,
        kv_heads_by_layer=(decoder.num_key_value_heads,) * decoder.num_hidden_layers,
        key_length=decoder.head_size,
        value_length=decoder.head_size,
        vocabulary_tokens=model.vocab_size,
        trained_context_tokens=model.context_length,
    )


def _require_agreement(config: GenaiConfig, graph: Graph, tokenizer: TokenizerFacts) -> None:
    inputs = config.model.decoder.inputs
    for name in (inputs.input_ids, inputs.attention_mask, inputs.position_ids):
        if name is not None and name not in graph.inputs:
            raise ModelCorrupt(f"The graph has no input {name}.", param="inputs")
    if tokenizer.tokens > config.model.vocab_size:
        raise ModelCorrupt(
            f"vocab_size is {config.model.vocab_size}; the tokenizer has {tokenizer.tokens} tokens.", param="vocab_size"
        )


def _parameters(graph: Graph) -> int:
    total = 0
    for name, weight in graph.weights.items():
        if name in graph.matrices:
            rows, columns, _ = graph.matrices[name]
            total += rows * columns
        elif not _HELPERS.search(name) and weight.type_name in ("F32", "F16", "BF16"):
            total += weight.parameters
    return max(1, total)


def _quantisation(graph: Graph) -> str:
    bits = {bits for _, _, bits in graph.matrices.values()}
    if bits:
        return "INT" + "+".join(str(each) for each in sorted(bits))
    sizes: dict[str, int] = {}
    for weight in graph.weights.values():
        sizes[weight.type_name] = sizes.get(weight.type_name, 0) + weight.size_bytes
    return max(sizes, key=lambda name: sizes[name], default="none")


def _tensor_bytes(graph: Graph) -> dict[str, dict[str, int]]:
    sizes: dict[str, dict[str, int]] = {}
    for name, weight in graph.weights.items():
        role = next((role for pattern, role in _ROLES if pattern.search(name)), "other")
        bits = graph.matrices.get(name)
        kind = f"INT{bits[2]}" if bits else weight.type_name
        types = sizes.setdefault(role, {})
        types[kind] = types.get(kind, 0) + weight.size_bytes
    return sizes
