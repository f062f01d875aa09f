"""MLC: a folder with a configuration, shards of parameters described record by record, and a tokenizer."""

from __future__ import annotations

import hashlib
import math
import os
import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from edge.packages.formats.entry import Inspection
from edge.packages.formats.files import Files, refuse_native_code
from edge.packages.formats.json_files import read_object, validated
from shared.errors import DigestMismatch, ModelCorrupt

CONFIG_FILE = "mlc-chat-config.json"
_CACHES = ("tensor-cache.json", "ndarray-cache.json")  # the second is the older name
_CACHE_LIMIT_BYTES = 32 << 20
_CHUNK_BYTES = 1 << 20
_SHARD = re.compile(r"params_shard_\d{1,6}\.bin")
_DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "uint32": 4, "int32": 4, "uint8": 1, "int8": 1, "uint16": 2}


class _Stated(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class _Tensor(_Stated):
    name: str = Field(max_length=256)
    shape: list[int] = Field(max_length=8)
    dtype: str = Field(max_length=32)
    nbytes: int = Field(ge=0)
    byteOffset: int = Field(ge=0)  # noqa: N815 - the name in the file


class _Shard(_Stated):
    dataPath: str = Field(max_length=128)  # noqa: N815 - the name in the file
    nbytes: int = Field(ge=0)
    md5sum: str | None = Field(default=None, pattern=r"^[0-9a-f]{32}$")
    records: list[_Tensor]


class _Cache(_Stated):
    records: list[_Shard] = Field(min_length=1)


class _Config(_Stated):
    model_type: str = Field(max_length=64)
    quantization: str = Field(max_length=64)
    context_window_size: int = Field(default=-1, ge=-1)
    vocab_size: int = Field(ge=1, le=1 << 22)
    tokenizer_files: list[str] = Field(min_length=1, max_length=32)


def recognise(files: Files) -> bool:
    """A folder with MLC's configuration."""
    return CONFIG_FILE in files


def inspect(files: Files) -> Inspection:
    """Verify the structure and the hash of every shard.

    Raises:
        ModelCorrupt: a file is missing, or a record does not lie where it says.
        DigestMismatch: a shard's bytes are not those that were described.
    """
    refuse_native_code(files)
    config = validated(_Config, read_object(files, CONFIG_FILE), CONFIG_FILE)
    for name in config.tokenizer_files:
        files.descriptor(name)
    cache_name = next((name for name in _CACHES if name in files), _CACHES[0])
    cache = validated(_Cache, read_object(files, cache_name, _CACHE_LIMIT_BYTES), cache_name)
    parameters = sum(_check_shard(shard, files) for shard in cache.records)
    details: dict[str, Any] = {
        "architecture": config.model_type,
        "quantisation": config.quantization,
        "trained_context_tokens": config.context_window_size,
        "vocabulary_tokens": config.vocab_size,
        "shards": len(cache.records),
        "tensors": sum(len(shard.records) for shard in cache.records),
        "stored_elements": parameters,
    }
    return Inspection(details=details)


def _check_shard(shard: _Shard, files: Files) -> int:
    """Elements stored in one shard, whose records must fill it without gap or overlap."""
    if not _SHARD.fullmatch(shard.dataPath):
        raise ModelCorrupt("A shard has a name that is none.", param="dataPath")
    size = files.size_bytes(shard.dataPath)
    if size != shard.nbytes:
        raise ModelCorrupt(f"{shard.nbytes} bytes were expected, {shard.dataPath} has {size}.", param=shard.dataPath)
    expected = elements = 0
    for record in sorted(shard.records, key=lambda record: record.byteOffset):
        if record.byteOffset != expected:
            raise ModelCorrupt(
                f"At byte {record.byteOffset}: {record.name[:64]!r} was expected at {expected}.", param=shard.dataPath
            )
        width = _DTYPE_BYTES.get(record.dtype)
        if width is None or any(extent < 1 for extent in record.shape):
            raise ModelCorrupt(f"{record.name[:64]!r} has an unknown type or shape.", param=shard.dataPath)
        if math.prod(record.shape) * width != record.nbytes:
            raise ModelCorrupt(
                f"At byte {record.byteOffset}: {record.name[:64]!r} states {record.nbytes} bytes; its shape needs "
                f"{math.prod(record.shape) * width}.",
                param=shard.dataPath,
            )
        expected += record.nbytes
        elements += math.prod(record.shape)
    if expected != size:
        raise ModelCorrupt(f"{shard.dataPath} has {size} bytes, its records {expected}.", param=shard.dataPath)
    if shard.md5sum is not None and _md5(files.descriptor(shard.dataPath)) != shard.md5sum:
        raise DigestMismatch(f"{shard.dataPath} does not hash to what {CONFIG_FILE} goes with.", param=shard.dataPath)
    return elements


def _md5(descriptor: int) -> str:
    # Against accidents alone; what vouches for a package is its signature over sha256.
    digest, at = hashlib.md5(usedforsecurity=False), 0
    while chunk := os.pread(descriptor, _CHUNK_BYTES, at):
        digest.update(chunk)
        at += len(chunk)
    return digest.hexdigest()
