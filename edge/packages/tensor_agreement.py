"""Compares a GGUF file's tensors with the dimensions that its keys state: where they differ the plan would be wrong.

The engine aborts on such files, or answers nonsense with status 200. Shapes are those of the architectures that run
here (llama.cpp, `load_tensors`), innermost dimension first. A tensor of another name is the engine's to judge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from edge.memory.geometry import ModelGeometry
from edge.packages.gguf import GgufHeader
from shared.errors import ModelCorrupt

_BLOCK = re.compile(r"^blk\.(\d+)\.(.+)$")
_FUSED_GATE = frozenset({"phi3"})
"""Architectures whose `ffn_up` holds the gate too."""

Shape = tuple[int, ...]


def check_tensors(header: GgufHeader, geometry: ModelGeometry) -> None:
    """Refuse tensors of other shapes, and blocks that are missing, too many or unlike each other.

    Raises:
        ModelCorrupt: `param` is the tensor or the key.
    """
    found = {tensor.name: tensor.dimensions for tensor in header.tensors}
    stated = header.metadata.get(f"{geometry.architecture}.vocab_size", geometry.vocabulary_tokens)
    if stated != geometry.vocabulary_tokens:
        raise ModelCorrupt(
            f"vocab_size is {repr(stated)[:80]}; the token list has {geometry.vocabulary_tokens}.",
            param=f"{geometry.architecture}.vocab_size",
        )
    _check_shape("token_embd.weight", found.get("token_embd.weight"), _embedding(geometry))
    _check_blocks(header, geometry)
    for name, expected in _expected(header, geometry):
        if name in found:
            _check_shape(name, found[name], expected)


def _check_shape(name: str, found: Shape | None, expected: Shape) -> None:
    if found != expected:
        shown = "missing" if found is None else str(found)
        raise ModelCorrupt(f"{name} is {shown}; {expected} was expected.", param=name)


def _check_blocks(header: GgufHeader, geometry: ModelGeometry) -> None:
    """Every block of a decoder that runs here has the same tensors."""
    blocks: dict[int, set[str]] = {}
    for tensor in header.tensors:
        if match := _BLOCK.match(tensor.name):
            blocks.setdefault(int(match[1]), set()).add(match[2])
    if blocks.keys() != set(range(geometry.layers)):
        raise ModelCorrupt(
            f"block_count is {geometry.layers}; the tensors form {len(blocks)} blocks.",
            param=f"{geometry.architecture}.block_count",
        )
    for number, names in sorted(blocks.items()):
        if differing := sorted(names ^ blocks[0]):
            name = f"blk.{number}.{differing[0]}"
            fault = "missing, unlike in" if differing[0] in blocks[0] else "not in"
            raise ModelCorrupt(f"Tensor {name!r} is {fault} block 0.", param=name)


def _embedding(geometry: ModelGeometry) -> Shape:
    return (geometry.embedding_length, geometry.vocabulary_tokens)


def _expected(header: GgufHeader, geometry: ModelGeometry) -> Iterator[tuple[str, Shape]]:
    """Name and shape of every tensor whose shape the keys decide."""
    width, key, value = geometry.embedding_length, geometry.key_length, geometry.value_length
    yield "output.weight", _embedding(geometry)
    yield "output_norm.weight", (width,)
    heads_by_layer = _per_layer(header, geometry, "attention.head_count")
    feed_forward_by_layer = _per_layer(header, geometry, "feed_forward_length")
    up = 2 if geometry.architecture in _FUSED_GATE else 1
    layers = zip(heads_by_layer, geometry.kv_heads_by_layer, feed_forward_by_layer, strict=True)
    for layer, (heads, kv_heads, columns) in enumerate(layers):
        shapes: dict[str, Shape] = {
            "attn_norm": (width,),
            "attn_q": (width, heads * key),
            "attn_k": (width, kv_heads * key),
            "attn_v": (width, kv_heads * value),
            "attn_qkv": (width, heads * key + kv_heads * (key + value)),
            "attn_output": (heads * value, width),
            "ffn_norm": (width,),
            "ffn_gate": (width, columns),
            "ffn_up": (width, up * columns),
            "ffn_down": (columns, width),
        }
        for name, shape in shapes.items():
            yield f"blk.{layer}.{name}.weight", shape


def _per_layer(header: GgufHeader, geometry: ModelGeometry, name: str) -> tuple[int, ...]:
    """A key that geometry has checked, for each layer."""
    value = header.metadata[f"{geometry.architecture}.{name}"]
    values = value if isinstance(value, tuple) else (value,) * geometry.layers
    return tuple(int(each) for each in values if isinstance(each, int | float))
