"""Reads an ONNX graph without the runtime: what it computes with, where its weights lie, that nothing leads outside.

Source of the field numbers: onnx.proto3 (ModelProto, GraphProto, NodeProto, TensorProto). Refused: operators of other
domains than ONNX and the runtime's own (those come from libraries), operators that read files, weights that lie
outside the package or beyond the end of their file, functions and training parts.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from edge.packages.formats.files import Files
from edge.packages.formats.protobuf import BYTES, Message, packed_varints, text
from shared.errors import ModelCorrupt

GRAPH_LIMIT_BYTES = 32 << 20
_DEPTH_LIMIT = 8
_DOMAINS = frozenset({"", "ai.onnx", "com.microsoft"})
_READING_OPERATORS = frozenset({"EPContext", "PyOp", "PythonOp"})
_LOCATION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")
_ELEMENTS: dict[int, tuple[str, int]] = {
    1: ("F32", 32), 2: ("U8", 8), 3: ("I8", 8), 4: ("U16", 16), 5: ("I16", 16), 6: ("I32", 32), 7: ("I64", 64),
    9: ("BOOL", 8), 10: ("F16", 16), 11: ("F64", 64), 12: ("U32", 32), 13: ("U64", 64), 16: ("BF16", 16),
    21: ("U4", 4), 22: ("I4", 4),
}  # fmt: skip
"""Name and bits of one element of each tensor type that a text model uses."""


@dataclass(frozen=True, slots=True)
class Weight:
    """One initialiser. `parameters` counts the numbers that it stands for, packed ones included."""

    name: str
    type_name: str
    parameters: int
    size_bytes: int


@dataclass(slots=True)
class Graph:
    """What a model file says."""

    producer: str = ""
    opset: int = 0
    operators: dict[str, int] = field(default_factory=dict)
    weights: dict[str, Weight] = field(default_factory=dict)
    inputs: dict[str, int] = field(default_factory=dict)
    """Element type of each input by name."""
    matrices: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Rows, columns and bits of the quantised matrix that each packed weight is."""
    data_files: set[str] = field(default_factory=set)


def read_graph(files: Files, name: str) -> Graph:
    """The graph in the file `name`.

    Raises:
        ModelCorrupt: it is malformed, computes with something foreign, or its weights are not where it says.
    """
    raw = memoryview(files.read(name, GRAPH_LIMIT_BYTES))
    graph, root = Graph(), Message(raw, name)
    found = False
    for number, kind, value, data in root.fields():
        if number == 7 and kind == BYTES:
            found = True
            _graph(root.message(value, data, f"{name} graph"), graph, files, 0)
        elif number == 8 and kind == BYTES:
            _opset(root.message(value, data, f"{name} opset"), graph)
        elif number == 2 and kind == BYTES:
            graph.producer = text(data, 64)
        elif number in (20, 25):
            raise ModelCorrupt(f"{name} holds functions or training parts, which are not run.", param=name)
    if not found:
        raise ModelCorrupt(f"{name} holds no graph.", param=name)
    return graph


def element_of(number: int) -> tuple[str, int]:
    """Name and bits of an element of the tensor type `number`.

    Raises:
        ModelCorrupt: no text model uses it.
    """
    known = _ELEMENTS.get(number)
    if known is None:
        raise ModelCorrupt(f"A tensor has type {number}, which is not read.", param="data_type")
    return known


def _opset(message: Message, graph: Graph) -> None:
    domain, version = "", 0
    for number, kind, value, data in message.fields():
        if number == 1 and kind == BYTES:
            domain = text(data, 128)
        elif number == 2:
            version = value
    _require_domain(domain)
    if domain in ("", "ai.onnx"):
        graph.opset = version


def _require_domain(domain: str) -> None:
    if domain not in _DOMAINS:
        raise ModelCorrupt(
            f"The graph uses operators of {domain[:64]!r}, which no runtime here brings.", param="domain"
        )


def _graph(message: Message, graph: Graph, files: Files, depth: int) -> None:
    if depth > _DEPTH_LIMIT:
        raise ModelCorrupt(f"The graph is nested deeper than {_DEPTH_LIMIT}.", param="graph")
    for number, kind, value, data in message.fields():
        if kind != BYTES:
            continue
        if number == 1:
            _node(message.message(value, data, "node"), graph, files, depth)
        elif number == 5:
            weight = _tensor(message.message(value, data, "initializer"), graph, files)
            graph.weights[weight.name] = weight
        elif number == 11 and depth == 0:
            _input(message.message(value, data, "input"), graph)
        elif number == 15:
            raise ModelCorrupt("The graph holds sparse weights, which are not read.", param="sparse_initializer")


def _node(message: Message, graph: Graph, files: Files, depth: int) -> None:
    operator, domain, inputs, numbers = "", "", [], {}
    for number, kind, value, data in message.fields():
        if kind != BYTES:
            continue
        if number == 1:
            inputs.append(text(data, 256))
        elif number == 4:
            operator = text(data, 128)
        elif number == 7:
            domain = text(data, 128)
        elif number == 5:
            name, stated = _attribute(message.message(value, data, "attribute"), graph, files, depth)
            numbers[name] = stated
    _require_domain(domain)
    if operator in _READING_OPERATORS:
        raise ModelCorrupt(f"The graph uses the operator {operator}, which loads what it names.", param="op_type")
    graph.operators[operator] = graph.operators.get(operator, 0) + 1
    if operator == "MatMulNBits" and len(inputs) > 1:
        graph.matrices[inputs[1]] = (numbers.get("N", 0), numbers.get("K", 0), numbers.get("bits", 4))


def _attribute(message: Message, graph: Graph, files: Files, depth: int) -> tuple[str, int]:
    name, stated = "", 0
    for number, kind, value, data in message.fields():
        if number == 1 and kind == BYTES:
            name = text(data, 128)
        elif number == 3:
            stated = value
        elif number in (5, 10) and kind == BYTES:
            _tensor(message.message(value, data, "attribute tensor"), graph, files)
        elif number in (6, 11) and kind == BYTES:
            _graph(message.message(value, data, "subgraph"), graph, files, depth + 1)
    return name, stated


def _input(message: Message, graph: Graph) -> None:
    name, element = "", 0
    for number, kind, value, data in message.fields():
        if number == 1 and kind == BYTES:
            name = text(data, 256)
        elif number == 2 and kind == BYTES:
            element = _element_type(message.message(value, data, "input type"))
    graph.inputs[name] = element


def _element_type(message: Message) -> int:
    for number, kind, value, data in message.fields():
        if number == 1 and kind == BYTES:
            tensor = message.message(value, data, "tensor type")
            return next((v for n, k, v, _ in tensor.fields() if n == 1 and k != BYTES), 0)
    return 0


def _tensor(message: Message, graph: Graph, files: Files) -> Weight:
    name, element, dimensions, external, inline_bytes = "", 0, [], {}, 0
    for number, kind, value, data in message.fields():
        if number == 1:
            dimensions.extend(packed_varints(kind, value, data))
        elif number == 2:
            element = value
        elif number == 8 and kind == BYTES:
            name = text(data, 256)
        elif number == 9 and kind == BYTES:
            inline_bytes = len(data)
        elif number == 13 and kind == BYTES:
            key, stated = _pair(message.message(value, data, "external data"))
            external[key] = stated
    if len(dimensions) > 8 or any(extent >= 1 << 40 for extent in dimensions):
        raise ModelCorrupt(f"Tensor {name[:64]!r} has dimensions out of range.", param="dims")
    type_name, bits = element_of(element)
    elements = math.prod(dimensions)
    size_bytes = -(-elements * bits // 8)
    if external:
        _check_external(name, external, size_bytes, files)
        graph.data_files.add(external["location"])
    elif inline_bytes and inline_bytes != size_bytes:
        raise ModelCorrupt(
            f"Tensor {name[:64]!r} has {inline_bytes} bytes where its shape needs {size_bytes}.", param="raw_data"
        )
    return Weight(name, type_name, elements, size_bytes)


def _pair(message: Message) -> tuple[str, str]:
    found = {number: text(data, 256) for number, kind, _, data in message.fields() if kind == BYTES}
    return found.get(1, ""), found.get(2, "")


def _check_external(name: str, external: dict[str, str], size_bytes: int, files: Files) -> None:
    """The weight must lie whole inside a file of the package, named without a path."""
    location = external.get("location", "")
    if not _LOCATION.fullmatch(location):
        raise ModelCorrupt(f"Tensor {name[:64]!r} lies outside the package.", param="external_data.location")
    try:
        offset, length = int(external.get("offset", "0")), int(external.get("length", str(size_bytes)))
    except ValueError:
        raise ModelCorrupt(f"Tensor {name[:64]!r} has no readable offset.", param="external_data.offset") from None
    if length != size_bytes or offset < 0 or offset + length > files.size_bytes(location):
        raise ModelCorrupt(
            f"Tensor {name[:64]!r} needs {size_bytes} bytes at {offset} of {location}, which has "
            f"{files.size_bytes(location)}.",
            param="external_data.length",
        )
