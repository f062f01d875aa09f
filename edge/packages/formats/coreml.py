"""Core ML: an `.mlpackage` folder with a list of items, a protocol-buffer model and a file of weights.

Source: Apple's Model.proto, MIL.proto and the weight file's layout as coremltools writes it. Compute units are chosen
when a model is loaded and stand nowhere in the package.
"""

from __future__ import annotations

import re
import struct
from typing import Any

from edge.packages.formats.entry import Inspection
from edge.packages.formats.files import Files, refuse_native_code
from edge.packages.formats.json_files import read_object
from edge.packages.formats.protobuf import BYTES, Message, text
from shared.errors import ModelCorrupt

MANIFEST = "Manifest.json"
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}){0,7}")
_MODEL_LIMIT_BYTES = 64 << 20
_WEIGHT_SUFFIX = "weights/weight.bin"
_SENTINEL = 0xDEADBEEF
_BLOCK_BYTES = 64
_BLOBS_LIMIT = 1 << 16
# Fields of Model: types that run code of the application's own.
_CUSTOM_MODEL, _ML_PROGRAM = 555, 502
_NEURAL_NETWORKS = {500: "neural network", 303: "neural network classifier", 403: "neural network regressor"}


def recognise(files: Files) -> bool:
    """A folder with Core ML's list of items."""
    return MANIFEST in files and any(name.endswith(".mlmodel") for name in files.names)


def inspect(files: Files) -> Inspection:
    """Verify the structure.

    Raises:
        ModelCorrupt: items, model or weights are malformed, missing, or lead outside the package.
    """
    refuse_native_code(files)
    model_name = _root_model(files)
    model = Message(memoryview(files.read(model_name, _MODEL_LIMIT_BYTES)), model_name)
    details: dict[str, Any] = {"specification_version": 0, "kind": "other", "functions": (), "inputs": (), "state": ()}
    for number, kind, value, data in model.fields():
        if number == 1 and kind != BYTES:
            details["specification_version"] = value
        elif number == 2 and kind == BYTES:
            details |= _description(model.message(value, data, "description"))
        elif number == _ML_PROGRAM and kind == BYTES:
            details |= {"kind": "ML program", "functions": _functions(model.message(value, data, "program"))}
        elif number in _NEURAL_NETWORKS:
            details["kind"] = _NEURAL_NETWORKS[number]
        elif number == _CUSTOM_MODEL:
            raise ModelCorrupt("A custom model runs code that the package names.", param="customModel")
    if not 1 <= details["specification_version"] <= 64:
        raise ModelCorrupt(f"{model_name} states no specification version.", param="specificationVersion")
    weights = [name for name in files.names if name.endswith(_WEIGHT_SUFFIX)]
    return Inspection(details=details | {"weight_blobs": sum(_blobs(files, name) for name in weights)})


def _root_model(files: Files) -> str:
    """Path of the model that the list of items names as the root; every item must be there."""
    listed = read_object(files, MANIFEST)
    items = listed.get("itemInfoEntries")
    root = listed.get("rootModelIdentifier")
    if not isinstance(items, dict) or not isinstance(root, str) or root not in items:
        raise ModelCorrupt(f"{MANIFEST} names no root model.", param="rootModelIdentifier")
    for identifier, item in items.items():
        path = item.get("path") if isinstance(item, dict) else None
        if not isinstance(path, str) or not _PATH.fullmatch(path):
            raise ModelCorrupt(f"An item of {MANIFEST} leads outside the package.", param=str(identifier)[:64])
        place = f"Data/{path}"
        if place not in files and not any(name.startswith(f"{place}/") for name in files.names):
            raise ModelCorrupt(f"{place} is missing from the package.", param=place)
    return f"Data/{items[root]['path']}"


def _description(message: Message) -> dict[str, Any]:
    """Names of inputs and state of the model."""
    names: dict[int, list[str]] = {1: [], 13: []}
    for number, kind, value, data in message.fields():
        if number in names and kind == BYTES:
            feature = message.message(value, data, "feature")
            names[number].extend(text(name, 128) for n, k, _, name in feature.fields() if n == 1 and k == BYTES)
    return {"inputs": tuple(names[1]), "state": tuple(names[13])}


def _functions(message: Message) -> tuple[str, ...]:
    names: list[str] = []
    for number, kind, value, data in message.fields():
        if number == 2 and kind == BYTES:
            entry = message.message(value, data, "function")
            names.extend(text(name, 128) for n, k, _, name in entry.fields() if n == 1 and k == BYTES)
    return tuple(names)


def _blobs(files: Files, name: str) -> int:
    """Number of blobs in a weight file, each of which must lie whole in it."""
    size = files.size_bytes(name)
    head = files.head(name, 8)
    if len(head) < 8:
        raise ModelCorrupt(f"At byte 0: {name} has {size} bytes.", param=name)
    count, version = (int(number) for number in struct.unpack("<II", head))
    if version != 2 or count > _BLOBS_LIMIT:
        raise ModelCorrupt(f"At byte 0: {name} has version {version} and {count} blobs.", param=name)
    at = _BLOCK_BYTES
    for index in range(count):
        begin, length = _blob(files, name, at, index)
        if begin < at + _BLOCK_BYTES or begin + length > size:
            raise ModelCorrupt(
                f"At byte {at}: blob {index} of {name} ends at {begin + length}; the file has {size} bytes.", param=name
            )
        at = -(-(begin + length) // _BLOCK_BYTES) * _BLOCK_BYTES
    return count


def _blob(files: Files, name: str, at: int, index: int) -> tuple[int, int]:
    raw = files.range(name, at, 24)
    if len(raw) < 24 or struct.unpack_from("<I", raw)[0] != _SENTINEL:
        raise ModelCorrupt(f"At byte {at}: blob {index} of {name} does not begin with its mark.", param=name)
    length, begin = struct.unpack_from("<QQ", raw, 8)
    return int(begin), int(length)
