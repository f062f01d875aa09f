"""Decides whether an open GGUF file is a base model that the engine runs, and states its facts."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from edge.memory.geometry import ModelGeometry, geometry_of
from edge.packages.ggml_types import FILE_TYPES, STRING
from edge.packages.gguf import GgufArray, GgufHeader, read_header
from edge.packages.manifest import ModelFacts, Pooling, RopeFacts, TokenizerFacts
from edge.packages.tensor_agreement import check_tensors
from edge.packages.vocabulary import check_vocabulary
from shared.errors import ModelCorrupt, NotABaseModel, TrustError, UnsupportedArchitecture

SUPPORTED_ARCHITECTURES = frozenset(
    {"apertus", "arcee", "command-r", "ernie4_5", "exaone", "gemma", "gemma2", "gemma3", "granite", "hunyuan-dense",
     "internlm2", "llama", "mistral3", "olmo", "olmo2", "phi3", "qwen2", "qwen3", "seed_oss", "smollm3", "stablelm",
     "starcoder2"}
)  # fmt: skip
"""Decoders with full attention in every block, for which the KV arithmetic holds (for sliding windows: as an upper
bound). Others would be planned wrongly, so they are refused by name."""

_TOKENS = "tokenizer.ggml.tokens"
_MERGES = "tokenizer.ggml.merges"
_SPECIAL = {
    "bos": "tokenizer.ggml.bos_token_id",
    "eos": "tokenizer.ggml.eos_token_id",
    "eot": "tokenizer.ggml.eot_token_id",
    "unknown": "tokenizer.ggml.unknown_token_id",
    "padding": "tokenizer.ggml.padding_token_id",
}
_HASH_CHUNK_BYTES = 1 << 20
_ROLES = (
    (re.compile(r"^token_embd\.weight$"), "embedding"),
    (re.compile(r"^output\.weight$"), "head"),
    (re.compile(r"^blk\.\d+\.attn_(q|k|v|qkv)\.weight$"), "qkv"),
    (re.compile(r"^blk\.\d+\.attn_output\.weight$"), "attention_output"),
    (re.compile(r"^blk\.\d+\.ffn_(gate|up|down)\.weight$"), "feed_forward"),
)

# Pre-tokenizer tags of vocabularies whose family is known, by the hash of the token list.
_PRE_BY_TOKENS = {"e3f79317b457a91937391f6e0ee99d97ba2a3adae02bc26db8f59710ddb27ffe": "smollm"}


# llama.cpp's `llama_pooling_type`. None and rank (a score for a pair of texts) make no embeddings.
_POOLINGS: dict[int, Pooling | None] = {0: None, 1: "mean", 2: "cls", 3: "last", 4: None}


def inspect(fd: int) -> ModelFacts:
    """Check the header of the open file `fd` and return what it says.

    Raises:
        ModelCorrupt: the file is broken or contradicts itself.
        UnsupportedArchitecture: it is whole, but nothing here runs it; names the value found.
        NotABaseModel: it is whole, but an adapter, a vocabulary, a projector or one part of several.
    """
    header = read_header(fd)
    with located(header):
        return _facts(fd, header)


@contextmanager
def located(header: GgufHeader) -> Iterator[None]:
    """Say where in the file the key or tensor stands that a refusal in the block names."""
    try:
        yield
    except TrustError as refusal:
        offset = _offset_of(header, refusal.param or "")
        if offset is None or refusal.message.startswith("At byte"):
            raise
        raise type(refusal)(f"At byte {offset}: {refusal.message}", param=refusal.param) from None


def _offset_of(header: GgufHeader, name: str) -> int | None:
    if name in header.extents:
        return header.extents[name][0]
    for tensor in header.tensors:
        if tensor.name == name:
            return tensor.described_offset
    # A key that is missing would stand before this; a tensor that is missing stands nowhere.
    return header.keys_end if name.partition(".")[0] in _key_spaces(header) else None


def _key_spaces(header: GgufHeader) -> tuple[str, ...]:
    return ("general", "tokenizer", str(header.metadata.get("general.architecture")))


def _facts(fd: int, header: GgufHeader) -> ModelFacts:
    require_base_model(header)
    architecture = _require_architecture(header)
    tokenizer = _tokenizer(fd, header)
    geometry = geometry_of(header.metadata, vocabulary_tokens=tokenizer.tokens)
    check_tensors(header, geometry)
    _check_norms(header, architecture)
    tensor_bytes = tensor_bytes_of(header)
    return ModelFacts(
        architecture=architecture,
        quantisation=_quantisation(header),
        parameters=sum(math.prod(tensor.dimensions) for tensor in header.tensors),
        weight_bytes={role: sum(types.values()) for role, types in tensor_bytes.items()},
        tensor_bytes=tensor_bytes,
        geometry=geometry,
        tokenizer=tokenizer,
        rope=_rope(header, geometry),
        trained_context_tokens=geometry.trained_context_tokens,
        pooling=pooling_of(header),
    )


def pooling_of(header: GgufHeader) -> Pooling | None:
    """How the model makes one vector of a text, where its file says that it does.

    Raises:
        ModelCorrupt: the key holds something else than llama.cpp's numbers for it.
    """
    key = f"{header.metadata.get('general.architecture')}.pooling_type"
    value = header.metadata.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value not in _POOLINGS:
        raise ModelCorrupt(f"{key} is {_shown(value)}, none of {', '.join(map(str, _POOLINGS))}.", param=key)
    return _POOLINGS[value]


def require_base_model(header: GgufHeader) -> None:
    """Refuse what is no model of its own.

    Raises:
        NotABaseModel: it is an adapter, a vocabulary, a projector or one part of several.
    """
    kind = header.metadata.get("general.type", "model")
    if kind != "model":
        raise NotABaseModel(f"general.type is {_shown(kind)}; a base model was expected.", param="general.type")
    parts = header.metadata.get("split.count", 1)
    if parts not in (0, 1):
        raise NotABaseModel(
            f"This is one part of a model split into {_shown(parts)} files. Import or pull joins them when they are "
            "named NAME-00001-of-00002.gguf and lie in one folder.",
            param="split.count",
        )


def _require_architecture(header: GgufHeader) -> str:
    found = header.metadata.get("general.architecture")
    if not isinstance(found, str) or found not in SUPPORTED_ARCHITECTURES:
        shown = "missing" if found is None else _shown(found)
        raise UnsupportedArchitecture(
            f"general.architecture is {shown}; no engine here runs it.", param="general.architecture"
        )
    if not header.tensors:
        raise NotABaseModel("The file holds a vocabulary and no tensors.", param="tensor_count")
    return found


def _shown(value: object) -> str:
    """A header value for a message: short and printable whatever the file says."""
    return repr(value)[:80]


def _tokenizer(fd: int, header: GgufHeader) -> TokenizerFacts:
    tokens = header.metadata.get(_TOKENS)
    if not isinstance(tokens, GgufArray) or tokens.element_type != STRING or not tokens.count:
        raise ModelCorrupt(f"{_TOKENS} is missing or no list of strings.", param=_TOKENS)
    check_vocabulary(fd, header, tokens)
    model, pre = _text(header, "tokenizer.ggml.model"), _text(header, "tokenizer.ggml.pre")
    template = _text(header, "tokenizer.chat_template")
    fingerprint = _sha256_of(fd, tokens)
    return TokenizerFacts(
        model=model or "missing",
        pre=pre,
        tokens=tokens.count,
        tokens_sha256=fingerprint,
        special_ids=_special_ids(header, tokens.count),
        chat_template_sha256=hashlib.sha256(template.encode()).hexdigest() if template else None,
        merges_sha256=_merges_sha256(fd, header),
        adds=_adds(header),
        findings=_findings(model, pre, fingerprint, template),
    )


def _merges_sha256(fd: int, header: GgufHeader) -> str | None:
    merges = header.metadata.get(_MERGES)
    if merges is None:
        return None
    if not isinstance(merges, GgufArray) or merges.element_type != STRING:
        raise ModelCorrupt(f"{_MERGES} is no list of strings.", param=_MERGES)
    return _sha256_of(fd, merges)


def _adds(header: GgufHeader) -> dict[str, bool]:
    adds = {}
    for name in ("bos", "eos"):
        key = f"tokenizer.ggml.add_{name}_token"
        value = header.metadata.get(key)
        if value is None:
            continue
        if not isinstance(value, bool):
            raise ModelCorrupt(f"{key} is neither true nor false.", param=key)
        adds[name] = value
    return adds


def pre_of_tokens(fingerprint: str) -> str | None:
    """The pre-tokenizer tag that belongs to the vocabulary of that hash; None: the vocabulary is not known here."""
    return _PRE_BY_TOKENS.get(fingerprint)


def _findings(model: str | None, pre: str | None, fingerprint: str, template: str | None) -> tuple[str, ...]:
    found = []
    expected = pre_of_tokens(fingerprint)
    if expected is not None and pre != expected:
        found.append("pre_tokenizer_mismatch")
    elif model == "gpt2" and pre in (None, "default"):
        found.append("pre_tokenizer_missing")
    if not template:
        found.append("chat_template_missing")
    return tuple(found)


def _special_ids(header: GgufHeader, tokens: int) -> dict[str, int]:
    ids = {}
    for name, key in _SPECIAL.items():
        value = header.metadata.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < tokens:
            raise ModelCorrupt(f"{key} is {_shown(value)}, not a number or beyond the {tokens} tokens.", param=key)
        ids[name] = value
    return ids


def _text(header: GgufHeader, key: str) -> str | None:
    value = header.metadata.get(key)
    if value is not None and not isinstance(value, str):
        raise ModelCorrupt(f"{key} is not a string.", param=key)
    return value


def _sha256_of(fd: int, array: GgufArray) -> str:
    digest, at, end = hashlib.sha256(), array.offset, array.offset + array.size_bytes
    while at < end:
        chunk = os.pread(fd, min(_HASH_CHUNK_BYTES, end - at), at)
        if not chunk:
            raise ModelCorrupt("The file shrank while it was read.", param="file")
        digest.update(chunk)
        at += len(chunk)
    return digest.hexdigest()


def _quantisation(header: GgufHeader) -> str:
    """The file type where stated, else the type that holds most bytes."""
    stated = header.metadata.get("general.file_type")
    if isinstance(stated, int) and stated in FILE_TYPES:
        return FILE_TYPES[stated]
    sizes: dict[str, int] = {}
    for tensor in header.tensors:
        sizes[tensor.type_name] = sizes.get(tensor.type_name, 0) + tensor.size_bytes
    return max(sizes, key=lambda name: sizes[name])


def tensor_bytes_of(header: GgufHeader) -> dict[str, dict[str, int]]:
    """Bytes of the described tensors by role and type, as `ModelFacts.tensor_bytes` has them."""
    sizes: dict[str, dict[str, int]] = {}
    for tensor in header.tensors:
        role = next((role for pattern, role in _ROLES if pattern.match(tensor.name)), "other")
        types = sizes.setdefault(role, {})
        types[tensor.type_name] = types.get(tensor.type_name, 0) + tensor.size_bytes
    return sizes


def _rope(header: GgufHeader, geometry: ModelGeometry) -> RopeFacts:
    architecture = geometry.architecture
    dimensions = _number(header, f"{architecture}.rope.dimension_count")
    if dimensions is not None and not (dimensions % 2 == 0 and 0 <= dimensions <= geometry.key_length):
        key = f"{architecture}.rope.dimension_count"
        raise ModelCorrupt(f"{key} is {dimensions}; a head has {geometry.key_length}, in pairs.", param=key)
    return RopeFacts(
        dimension_count=int(dimensions) if dimensions is not None else None,
        freq_base=_number(header, f"{architecture}.rope.freq_base", above_zero=True),
        scaling_type=_text(header, f"{architecture}.rope.scaling.type"),
        scaling_factor=_number(header, f"{architecture}.rope.scaling.factor"),
    )


def _number(header: GgufHeader, key: str, *, above_zero: bool = False) -> int | float | None:
    """A number that the engine computes with: what is not finite, or below 0, turns every token into nonsense."""
    value = header.metadata.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ModelCorrupt(f"{key} is not a finite number of at least 0.", param=key)
    if above_zero and value == 0:
        raise ModelCorrupt(f"{key} is 0.", param=key)
    return value


def _check_norms(header: GgufHeader, architecture: str) -> None:
    for name in ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"):
        key = f"{architecture}.{name}"
        if (value := _number(header, key)) is not None and value >= 1:
            raise ModelCorrupt(f"{key} is {value}; it must be far below 1.", param=key)
