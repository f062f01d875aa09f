"""The operators of a llama-like decoder in the order in which they run, each with its FLOPs and the bytes it moves.

Counts follow the usual accounting: 2 FLOPs per weight and token for a matrix product (Kaplan et al., "Scaling Laws for
Neural Language Models", 2020, table 1; Hoffmann et al., 2022, appendix F), attention by context length, grouped
keys and values read once per group (Ainslie et al., "GQA", 2023). Weights are read once per pass, in the bytes that
their types take (a Q4_1 block: 32 weights in 20 bytes); activations are 32-bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edge.devices.delegation import Need, OperatorKind
from edge.memory.geometry import ModelGeometry
from edge.memory.kv import KvType, kv_bytes_per_token
from edge.scheduling.workload import Pass

_ACTIVATION_BYTES = 4
_NORM_FLOPS_PER_ELEMENT = 4
_ROPE_FLOPS_PER_ELEMENT = 3
_SOFTMAX_FLOPS_PER_SCORE = 5
_ROLES = {
    OperatorKind.QKV: "qkv",
    OperatorKind.ATTENTION_OUTPUT: "attention_output",
    OperatorKind.FEED_FORWARD: "feed_forward",
}


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of one pass. `layer` is None outside the blocks; `state_bytes` is what the next operator needs."""

    kind: OperatorKind
    layer: int | None
    flops: float
    bytes_moved: float
    weight_bytes: float
    state_bytes: float
    weight_types: frozenset[str] = frozenset()

    @property
    def need(self) -> Need:
        """What it asks of a unit."""
        return Need(self.kind, self.weight_types)


@dataclass(frozen=True, slots=True)
class Model:
    """What the graph is made from: dimensions, bytes of weights by role and type, type of the KV cache.

    Roles are those of a package's `tensor_bytes`. Without a `head` the embedding matrix serves as one (tied weights).
    Bytes of a role are taken as equal in every layer; mixed quantisations differ a little from layer to layer.
    """

    geometry: ModelGeometry
    tensor_bytes: Mapping[str, Mapping[str, int]]
    kv_type: KvType = KvType.F16

    def role_bytes(self, role: str) -> int:
        """Bytes of all weights of `role`."""
        return sum(self.tensor_bytes.get(role, {}).values())

    def role_types(self, role: str) -> frozenset[str]:
        """Types in which weights of `role` are stored."""
        return frozenset(self.tensor_bytes.get(role, {}))

    @property
    def head_role(self) -> str:
        """The role whose weights the head multiplies with."""
        return "head" if self.role_bytes("head") else "embedding"

    @property
    def types(self) -> frozenset[str]:
        """All types of weights of matrix products."""
        return frozenset().union(*(self.role_types(role) for role in (*_ROLES.values(), self.head_role)))

    @property
    def product_bytes(self) -> int:
        """Bytes of all weights that decoding one token reads."""
        return sum(self.role_bytes(role) for role in (*_ROLES.values(), self.head_role))


def operators(model: Model, work: Pass) -> tuple[Operator, ...]:
    """All operators of one pass, in order. Only tokens that are outputs go through the head."""
    blocks = [each for layer in range(model.geometry.layers) for each in _block(model, layer, work)]
    return (_embedding(model, work), *blocks, _norm(model, None, work, residual=False), _head(model, work))


def _block(model: Model, layer: int, work: Pass) -> tuple[Operator, ...]:
    geometry, tokens = model.geometry, work.tokens
    width, heads, kv_heads = geometry.embedding_length, geometry.heads, geometry.kv_heads_by_layer[layer]
    queries, keys = heads * geometry.key_length, kv_heads * geometry.key_length
    values, attended = kv_heads * geometry.value_length, heads * geometry.value_length
    rotated = queries + keys
    return (
        _norm(model, layer, work, residual=True),
        _product(model, OperatorKind.QKV, layer, work, width * (queries + keys + values), queries + keys + values),
        Operator(
            OperatorKind.ROPE,
            layer,
            _ROPE_FLOPS_PER_ELEMENT * tokens * rotated,
            _ACTIVATION_BYTES * tokens * 2 * rotated,
            0.0,
            _ACTIVATION_BYTES * tokens * (queries + keys + values + width),
        ),
        _attention(model, layer, work, queries + attended, attended),
        _product(model, OperatorKind.ATTENTION_OUTPUT, layer, work, attended * width, width, residual=False),
        _norm(model, layer, work, residual=True),
        _product(
            model,
            OperatorKind.FEED_FORWARD,
            layer,
            work,
            3 * width * geometry.feed_forward_length,
            width,
            residual=False,
            inner=3 * geometry.feed_forward_length,
        ),
    )


def _product(
    model: Model,
    kind: OperatorKind,
    layer: int,
    work: Pass,
    weights: int,
    outputs: int,
    *,
    residual: bool = True,
    inner: int = 0,
) -> Operator:
    """A matrix product: 2 FLOPs a weight and token; the weights of the layer are read once a pass.

    `inner` counts elements between the matrices of the operator. With `residual`, the stream that is added after the
    block goes along to whoever computes next.
    """
    role, width = _ROLES[kind], model.geometry.embedding_length
    weight_bytes = model.role_bytes(role) / model.geometry.layers
    return Operator(
        kind,
        layer,
        2.0 * work.tokens * weights,
        weight_bytes + _ACTIVATION_BYTES * work.tokens * (width + inner + outputs),
        weight_bytes,
        _ACTIVATION_BYTES * work.tokens * (outputs + (width if residual else 0)),
        model.role_types(role),
    )


def _norm(model: Model, layer: int | None, work: Pass, *, residual: bool) -> Operator:
    """Root mean square norm (Zhang and Sennrich, 2019): square, add, scale by the mean, scale by the weight."""
    geometry = model.geometry
    elements = work.tokens * geometry.embedding_length
    weight_bytes = model.role_bytes("other") / (2 * geometry.layers + 1)
    return Operator(
        OperatorKind.NORM,
        layer,
        _NORM_FLOPS_PER_ELEMENT * elements,
        weight_bytes + 2 * _ACTIVATION_BYTES * elements,
        weight_bytes,
        _ACTIVATION_BYTES * elements * (2 if residual else 1),
    )


def _attention(model: Model, layer: int, work: Pass, touched: int, attended: int) -> Operator:
    """Scores and weighted values: 2 FLOPs each per head, element and position, and an online softmax.

    The softmax counts 5 per score (Dao et al., "FlashAttention", 2022, algorithm 1: maximum, exponent, sum, rescale
    twice). A pass reads the layer's cache once up to its own end, and writes its own tokens.
    """
    geometry, tokens = model.geometry, work.tokens
    ahead = work.past_tokens + tokens
    mean_length = work.past_tokens + (tokens + 1) / 2
    if layer < len(geometry.windowed_by_layer) and geometry.windowed_by_layer[layer] and geometry.window_tokens:
        ahead = min(ahead, geometry.window_tokens + tokens)
        mean_length = min(mean_length, geometry.window_tokens)
    head_flops = 2 * (geometry.key_length + geometry.value_length) + _SOFTMAX_FLOPS_PER_SCORE
    share = geometry.kv_heads_by_layer[layer] / sum(geometry.kv_heads_by_layer)
    cell_bytes = kv_bytes_per_token(geometry, model.kv_type) * share
    return Operator(
        OperatorKind.ATTENTION,
        layer,
        float(geometry.heads * head_flops) * tokens * mean_length,
        cell_bytes * (ahead + tokens) + _ACTIVATION_BYTES * tokens * touched,
        0.0,
        _ACTIVATION_BYTES * tokens * (attended + geometry.embedding_length),
    )


def _embedding(model: Model, work: Pass) -> Operator:
    """One row of the matrix for each token. Tied weights are held once, by the head."""
    geometry, stored = model.geometry, model.role_bytes("embedding")
    out_bytes = _ACTIVATION_BYTES * work.tokens * geometry.embedding_length
    return Operator(
        OperatorKind.EMBEDDING,
        None,
        0.0,
        work.tokens * stored / geometry.vocabulary_tokens + out_bytes,
        stored if model.head_role == "head" else 0.0,
        out_bytes,
        model.role_types("embedding"),
    )


def _head(model: Model, work: Pass) -> Operator:
    """The product of each output with the whole vocabulary; its matrix is read only where there is an output."""
    geometry, stored = model.geometry, model.role_bytes(model.head_role)
    read_bytes = min(1.0, work.outputs) * stored
    return Operator(
        OperatorKind.HEAD,
        None,
        2.0 * work.outputs * geometry.embedding_length * geometry.vocabulary_tokens,
        read_bytes + _ACTIVATION_BYTES * work.outputs * (geometry.embedding_length + geometry.vocabulary_tokens),
        stored,
        _ACTIVATION_BYTES * work.outputs * geometry.vocabulary_tokens,
        model.role_types(model.head_role),
    )
