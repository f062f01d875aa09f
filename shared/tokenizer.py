"""What decides how text becomes tokens, in a form that two tiers can compare, and how a checkpoint folder states it.

Compared are the token list, the ids at which text begins and ends, and the chat template. The pre-tokenizer is not: a
GGUF file names it by a tag and a checkpoint describes it by rules, and different rules can split alike.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

_FILE_LIMIT_BYTES = 64 << 20
_TOKENS_LIMIT = 1 << 22
_COMPARED_IDS = ("bos", "eos")


@dataclass(frozen=True, slots=True)
class TokenizerIdentity:
    """`tokens_sha256` is over every token in the order of ids: length as 8 bytes, little end first, then UTF-8."""

    tokens: int
    tokens_sha256: str
    special_ids: Mapping[str, int]
    chat_template_sha256: str | None

    @property
    def fingerprint(self) -> str:
        """64 hex digits: equal for two packages that turn the same conversation into the same ids.

        The first id of a text is left out: many checkpoints of models that do not use one state none.
        """
        value = [self.tokens, self.tokens_sha256, self.special_ids.get("eos"), self.chat_template_sha256]
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
    digest = hashlib.sha256()
    for token in tokens:
        raw = token.encode("utf-8", "surrogatepass")
        digest.update(struct.pack("<Q", len(raw)) + raw)
    special = {name: ids[text] for name in _COMPARED_IDS if (text := _text(config.get(f"{name}_token"))) in ids}
    return TokenizerIdentity(len(tokens), digest.hexdigest(), special, _template_sha256(folder, config))


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
