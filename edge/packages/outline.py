"""States what a memory plan needs to know of a model file, from its header alone; the weights need not be there."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edge.memory.geometry import ModelGeometry, expert_columns, geometry_of
from edge.memory.parameters import ParameterCounts, counted, derived
from edge.packages.ggml_types import FILE_TYPES
from edge.packages.gguf import GgufArray, GgufHeader, read_header
from edge.packages.manifest import WHOLE_FOLDER, Pooling
from edge.packages.model_file import SUPPORTED_ARCHITECTURES, located, pooling_of, require_base_model, tensor_bytes_of
from edge.packages.package import Package, opened
from shared.errors import NotFound

_TOKENS = "tokenizer.ggml.tokens"
# Bits of an element by the file type that a header without tensors states; any other is counted as 16.
_EXACT_BITS = {"F32": 32.0, "Q8_0": 8.5}
_ASSUMED_BITS = 16.0


@dataclass(frozen=True, slots=True)
class Outline:
    """One model as a plan sees it. `file_bytes` is the size of the whole file, present or not."""

    name: str
    architecture: str
    quantisation: str
    geometry: ModelGeometry
    parameters: ParameterCounts
    file_bytes: int
    data_offset_bytes: int
    alignment_bytes: int
    tensor_bytes: Mapping[str, Mapping[str, int]]
    """Bytes of weights by role and type, as `ModelFacts.tensor_bytes` has them."""
    findings: tuple[str, ...]
    """What was assumed or counted as an upper bound, and what keeps the engine from running the model."""
    pooling: Pooling | None = None
    """As `ModelFacts.pooling`."""


def outline_of_package(package: Package) -> Outline:
    """The outline of an installed package.

    Raises:
        ModelCorrupt: its file is not what it was.
    """
    if package.manifest.entry == WHOLE_FOLDER:
        return _of_manifest(package)
    with opened(package) as fd:
        return outline_of(fd, package.name)


def outline_of_file(path: Path) -> Outline:
    """The outline of the GGUF file at `path`, which may end before its tensors do.

    Raises:
        NotFound: it cannot be read.
        TrustError: it is not a GGUF file, contradicts itself, or is no model of text.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}.", param="model") from None
    with file:
        return outline_of(file.fileno(), path.stem)


def outline_of(fd: int, name: str) -> Outline:
    """The outline of the open GGUF file `fd`; raises as `outline_of_file`."""
    header = read_header(fd, with_data=False)
    with located(header):
        return _outline(header, name, os.fstat(fd).st_size)


def _outline(header: GgufHeader, name: str, present_bytes: int) -> Outline:
    require_base_model(header)
    tokens = header.metadata.get(_TOKENS)
    vocabulary_tokens = tokens.count if isinstance(tokens, GgufArray) else None
    geometry = geometry_of(header.metadata, vocabulary_tokens=vocabulary_tokens)
    known = geometry.architecture in SUPPORTED_ARCHITECTURES
    parameters, file_bytes, findings = _weights(header, geometry)
    tensor_bytes = tensor_bytes_of(header) if header.tensors else _derived_bytes(geometry, _quantisation(header))
    return Outline(
        name=name,
        architecture=geometry.architecture,
        quantisation=_quantisation(header),
        geometry=geometry,
        parameters=parameters,
        file_bytes=file_bytes,
        data_offset_bytes=header.data_offset,
        alignment_bytes=header.alignment_bytes,
        tensor_bytes=tensor_bytes,
        findings=(
            *(() if known else ("unknown_architecture_in_full",)),
            *geometry.findings,
            *findings,
            *(("weights_absent",) if file_bytes > present_bytes else ()),
        ),
        pooling=pooling_of(header),
    )


def _weights(header: GgufHeader, geometry: ModelGeometry) -> tuple[ParameterCounts, int, tuple[str, ...]]:
    if header.tensors:
        last = header.tensors[-1]
        elements = ((tensor.name, math.prod(tensor.dimensions)) for tensor in header.tensors)
        return counted(elements, geometry.layers), last.offset + last.size_bytes, ()
    parameters = derived(geometry, feed_forward_columns=expert_columns(header.metadata, geometry))
    bits = _EXACT_BITS.get(_quantisation(header), _ASSUMED_BITS)
    # Whether the embedding serves as the head too is said by the tensors alone: both are counted.
    elements_at_most = parameters.total + parameters.embedding
    return parameters, header.data_offset + math.ceil(elements_at_most * bits / 8), ("weights_estimated",)


def _derived_bytes(geometry: ModelGeometry, quantisation: str) -> dict[str, dict[str, int]]:
    """Bytes by role from the dimensions of a gated decoder, for a header without tensors; upwards, as `_weights`."""
    kind, bits = (quantisation if quantisation in _EXACT_BITS else "F16"), _EXACT_BITS.get(quantisation, _ASSUMED_BITS)
    width, layers, lengths = geometry.embedding_length, geometry.layers, geometry.key_length + geometry.value_length
    queries, attended = geometry.heads * geometry.key_length, geometry.heads * geometry.value_length
    elements = {
        "embedding": geometry.vocabulary_tokens * width,
        "qkv": width * (layers * queries + sum(geometry.kv_heads_by_layer) * lengths),
        "attention_output": layers * attended * width,
        "feed_forward": layers * 3 * width * geometry.feed_forward_length,
    }
    return {role: {kind: math.ceil(count * bits / 8)} for role, count in elements.items()}


def _quantisation(header: GgufHeader) -> str:
    stated = header.metadata.get("general.file_type")
    if isinstance(stated, int) and stated in FILE_TYPES:
        return FILE_TYPES[stated]
    sizes: dict[str, int] = {}
    for tensor in header.tensors:
        sizes[tensor.type_name] = sizes.get(tensor.type_name, 0) + tensor.size_bytes
    return max(sizes, key=lambda name: sizes[name], default="unknown")


def _of_manifest(package: Package) -> Outline:
    """Of a format without tensor descriptions that are read here: parts derived from the dimensions."""
    model = package.manifest.model
    return Outline(
        name=package.name,
        architecture=model.architecture,
        quantisation=model.quantisation,
        geometry=model.geometry,
        parameters=derived(model.geometry),
        file_bytes=package.manifest.size_bytes,
        data_offset_bytes=0,
        alignment_bytes=1,
        tensor_bytes=model.tensor_bytes,
        findings=(*model.geometry.findings, "parameters_derived"),
    )
