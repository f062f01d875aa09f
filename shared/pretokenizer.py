"""Decides which rules cut text before it becomes tokens: a GGUF file names them by a tag, a checkpoint writes them out.

Only byte-level BPE has such rules. Tags that mean the same rules form a family, called by its best-known tag. Source:
llama.cpp, `llm_tokenizer_bpe` (tags and expressions), and the `tokenizer.json` of the models that they were made for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_CONTRACTIONS_AND_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_PUNCTUATION_AND_SPACES = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _split(digits: str) -> list[dict[str, Any]]:
    pattern = f"{_CONTRACTIONS_AND_WORDS}|{digits}|{_PUNCTUATION_AND_SPACES}"
    return [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
    ]


_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_RULES: Mapping[str, list[dict[str, Any]]] = {
    "gpt-2": [_BYTE_LEVEL],
    "smollm": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL],
    "llama-bpe": _split(r"\p{N}{1,3}"),
    "qwen2": _split(r"\p{N}"),
}
_TAGS: Mapping[str, tuple[str, ...]] = {
    "gpt-2": ("gpt-2", "phi-2", "mpt", "olmo", "jais"),
    "smollm": ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"),
    "llama-bpe": ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"),
    "qwen2": ("qwen2", "stablelm2", "deepseek-r1-qwen"),
}
_FAMILIES = {tag: family for family, tags in _TAGS.items() for tag in tags}


def family_of_tag(tag: str | None) -> str | None:
    """The family of a GGUF tag; a tag whose rules are not written down here is a family of its own."""
    return None if tag is None else _FAMILIES.get(tag, tag)


def rules_of_tag(tag: str | None) -> dict[str, Any] | None:
    """The rules of a GGUF tag as `tokenizer.json` states them under `pre_tokenizer`; None where they are not known."""
    steps = _RULES.get(_FAMILIES.get(tag or "", ""))
    if steps is None:
        return None
    return steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}


def family_of_rules(stated: object) -> str | None:
    """The family whose rules a `pre_tokenizer` states; `other` for rules that end in bytes and are none of these.

    None: no byte-level rules, as tokenizers of another kind have.
    """
    if not isinstance(stated, dict):
        return None
    steps = stated.get("pretokenizers") if stated.get("type") == "Sequence" else [stated]
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        return None
    if not any(step.get("type") == "ByteLevel" for step in steps):
        return None
    found = [_meaning(step) for step in steps]
    return next((family for family, rules in _RULES.items() if [_meaning(rule) for rule in rules] == found), "other")


def _meaning(step: Mapping[str, Any]) -> tuple[object, ...]:
    """What of one step decides where text is cut: offsets do not, and defaults may be left out."""
    kind = step.get("type")
    if kind == "ByteLevel":
        return (kind, step.get("add_prefix_space", True), step.get("use_regex", True))
    if kind == "Digits":
        return (kind, step.get("individual_digits", False))
    if kind == "Split":
        return (kind, str(step.get("pattern")), step.get("behavior"), step.get("invert", False))
    return (kind, repr(sorted(step.items(), key=lambda item: item[0])))
