"""What decides how text becomes tokens, in a form that two tiers can compare, and how a checkpoint folder states it.

Compared are the token list, the merges and the pre-tokenizer's rules (`shared.pretokenizer`) of byte-level BPE, the ids
at which text begins and ends, whether they are added unasked, and the chat template.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from shared.pretokenizer import family_of_rules

_FILE_LIMIT_BYTES = 64 << 20
_TOKENS_LIMIT = 1 << 22
_COMPARED_IDS = ("bos", "eos", "unknown")
_CONFIG_NAMES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token"}


@dataclass(frozen=True, slots=True)
class TokenizerIdentity:
    """`tokens_sha256` is over every token in the order of ids: length as 8 bytes, little end first, then UTF-8.

    `merges_sha256` is the same over the merges, `A B` each. What is None is not stated, or means nothing here.
    """

    tokens: int
    tokens_sha256: str
    special_ids: Mapping[str, int]
    chat_template_sha256: str | None
    pre: str | None = None
    """Family of the pre-tokenizer's rules; None where the tokenizer is no byte-level BPE."""
    merges_sha256: str | None = None
    adds: Mapping[str, bool] = field(default_factory=dict)
    """Whether `bos` and `eos` are added to a text that does not ask for them."""

    @property
    def fingerprint(self) -> str:
        """64 hex digits: equal for two packages that turn the same conversation into the same ids.

        The first id of a text is left out: many checkpoints of models that do not use one state none.
        """
        value: list[object] = [
            self.tokens, self.tokens_sha256, self.special_ids.get("eos"), self.chat_template_sha256
        ]  # fmt: skip
        if self.pre is not None:
            value += [self.pre, self.merges_sha256]
        return hashlib.sha256(orjson.dumps(value)).hexdigest()


def differences(one: TokenizerIdentity, other: TokenizerIdentity) -> tuple[str, ...]:
    """The facts in which the two differ; an id that either does not state is no difference."""
    found = []
    if one.tokens != other.tokens:
        found.append(f"{one.tokens} tokens against {other.tokens}")
    elif one.tokens_sha256 != other.tokens_sha256:
        found.append("the token list")
    for name in _COMPARED_IDS:
        first, second = one.special_ids.get(name), other.special_ids.get(name)
        if first is not None and second is not None and first != second:
            found.append(f"{name} is {first} against {second}")
    if one.pre != other.pre and None not in (one.pre, other.pre):
        found.append(f"the pre-tokenizer ({one.pre} against {other.pre})")
    if one.merges_sha256 != other.merges_sha256 and None not in (one.merges_sha256, other.merges_sha256):
        found.append("the merges")
    found.extend(
        f"whether {name} is added ({_word(one.adds[name])} against {_word(other.adds[name])})"
        for name in sorted(one.adds.keys() & other.adds.keys())
        if one.adds[name] != other.adds[name]
    )
    if one.chat_template_sha256 != other.chat_template_sha256:
        found.append("the chat template")
    return tuple(found)


def identity_of(folder: Path) -> TokenizerIdentity | None:
    """The tokenizer of the checkpoint in `folder`; None where it is not stated in a form that is read here."""
    tokenizer, config = _json(folder / "tokenizer.json"), _json(folder / "tokenizer_config.json") or {}
    if tokenizer is None:
        return None
    try:
        ids = _token_ids(tokenizer)
        tokens = _in_order(ids)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return None
    special = {name: ids[text] for name, key in _CONFIG_NAMES.items() if (text := _text(config.get(key))) in ids}
    return TokenizerIdentity(
        tokens=len(tokens),
        tokens_sha256=sha256_of(tokens),
        special_ids=special,
        chat_template_sha256=_template_sha256(folder, config),
        pre=family_of_rules(tokenizer.get("pre_tokenizer")),
        merges_sha256=merges_sha256(tokenizer),
        adds=_adds(tokenizer, config),
    )


def sha256_of(texts: Iterable[str]) -> str:
    """Hash of a list of texts as a GGUF file stores it: 64-bit length, then UTF-8."""
    digest = hashlib.sha256()
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        digest.update(struct.pack("<Q", len(raw)) + raw)
    return digest.hexdigest()


def merges_sha256(tokenizer: Mapping[str, Any]) -> str | None:
    """Hash of the merges in the document of a `tokenizer.json`, whichever of the two forms they have."""
    model = tokenizer.get("model")
    merges = model.get("merges") if isinstance(model, dict) else None
    if not isinstance(merges, list) or not merges:
        return None
    texts = [" ".join(each) if isinstance(each, list) and all(isinstance(part, str) for part in each) else each
             for each in merges]  # fmt: skip
    return sha256_of(texts) if all(isinstance(text, str) for text in texts) else None


def _adds(tokenizer: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, bool]:
    """Whether the first and the last piece of a lone text is a special token, unless the configuration says so."""
    adds: dict[str, bool] = {}
    processor = tokenizer.get("post_processor")
    pieces = processor.get("single") if isinstance(processor, dict) else None
    if isinstance(processor, dict) and processor.get("type") == "TemplateProcessing" and isinstance(pieces, list):
        special = [isinstance(piece, dict) and "SpecialToken" in piece for piece in pieces]
        adds = {"bos": bool(special) and special[0], "eos": bool(special) and special[-1]}
    for name in ("bos", "eos"):
        if isinstance(stated := config.get(f"add_{name}_token"), bool):
            adds[name] = stated
    return adds


def _word(value: bool) -> str:
    return "yes" if value else "no"


def _token_ids(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """Token to id: BPE and WordPiece keep a mapping, Unigram a list of pairs; added tokens win."""
    vocabulary = tokenizer["model"]["vocab"]
    if isinstance(vocabulary, dict):
        ids = dict(vocabulary)
    else:
        ids = {entry[0]: number for number, entry in enumerate(vocabulary)}
    return ids | {added["content"]: added["id"] for added in tokenizer.get("added_tokens") or ()}


def _in_order(ids: Mapping[str, int]) -> list[str]:
    """Tokens by id. An id that nothing has, as padding of the embedding leaves, makes the list incomparable."""
    if not 0 < len(ids) <= _TOKENS_LIMIT:
        raise ValueError("no tokens")
    tokens: list[str | None] = [None] * len(ids)
    for token, number in ids.items():
        tokens[number] = token
    if any(not isinstance(token, str) for token in tokens):
        raise ValueError("ids have gaps")
    return [str(token) for token in tokens]


def _template_sha256(folder: Path, config: Mapping[str, Any]) -> str | None:
    raw = _bytes(folder / "chat_template.jinja")
    if raw is None and isinstance(stated := config.get("chat_template"), str):
        raw = stated.encode("utf-8", "surrogatepass")
    return hashlib.sha256(raw).hexdigest() if raw else None


def _text(token: Any) -> str | None:
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _json(path: Path) -> dict[str, Any] | None:
    raw = _bytes(path)
    try:
        value = orjson.loads(raw) if raw is not None else None
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _bytes(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            raw = file.read(_FILE_LIMIT_BYTES + 1)
    except OSError:
        return None
    return raw if len(raw) <= _FILE_LIMIT_BYTES else None
