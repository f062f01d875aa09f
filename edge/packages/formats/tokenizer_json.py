"""States the facts of a tokenizer from `tokenizer.json`, in the words in which a GGUF header states them.

The token list is hashed as GGUF stores it (64-bit length, then UTF-8, in order of ids), so that one vocabulary has one
fingerprint whatever the package's format is.
"""

from __future__ import annotations

import hashlib
from typing import Any

from edge.packages.formats.files import Files
from edge.packages.formats.json_files import read_object
from edge.packages.manifest import TokenizerFacts
from edge.packages.model_file import pre_of_tokens
from shared.errors import ModelCorrupt
from shared.pretokenizer import family_of_rules
from shared.tokenizer import merges_sha256, sha256_of

TOKENIZER_FILE = "tokenizer.json"
TEMPLATE_FILE = "chat_template.jinja"
_CONFIG_FILE = "tokenizer_config.json"
_LIMIT_BYTES = 64 << 20
_TOKENS_LIMIT = 1 << 22
_TEMPLATE_LIMIT_BYTES = 1 << 20
_ALGORITHMS = {"BPE": "llama", "Unigram": "t5", "WordPiece": "bert"}
_BYTE_LEVEL_BPE = "gpt2"


def tokenizer_facts(files: Files, special_ids: dict[str, int]) -> TokenizerFacts:
    """The facts of the package's tokenizer; `special_ids` are those that the model's configuration states.

    Raises:
        ModelCorrupt: the vocabulary is missing, has holes, or does not hold a special id.
    """
    document = read_object(files, TOKENIZER_FILE, _LIMIT_BYTES)
    tokens = _tokens(document)
    for name, token in special_ids.items():
        if not 0 <= token < len(tokens):
            raise ModelCorrupt(f"The {name} id is {token}, beyond the {len(tokens)} tokens.", param=f"{name}_token_id")
    fingerprint = sha256_of(tokens)
    template = _template(files)
    pre, expected = family_of_rules(document.get("pre_tokenizer")), pre_of_tokens(fingerprint)
    findings = ["pre_tokenizer_mismatch"] if expected is not None and pre != expected else []
    if template is None:
        findings.append("chat_template_missing")
    kind = document.get("model", {}).get("type")
    return TokenizerFacts(
        model=_BYTE_LEVEL_BPE if kind == "BPE" and pre is not None else _ALGORITHMS.get(kind, str(kind)[:32]),
        pre=pre,
        tokens=len(tokens),
        tokens_sha256=fingerprint,
        special_ids=special_ids,
        chat_template_sha256=hashlib.sha256(template.encode()).hexdigest() if template is not None else None,
        merges_sha256=merges_sha256(document),
        findings=tuple(findings),
    )


def _tokens(document: dict[str, Any]) -> list[str]:
    model = document.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    by_id: dict[Any, Any] = {}
    if isinstance(vocabulary, dict):
        by_id = {token: text for text, token in vocabulary.items()}
    elif isinstance(vocabulary, list):
        by_id = {token: entry[0] for token, entry in enumerate(vocabulary) if isinstance(entry, list) and entry}
    for added in document.get("added_tokens") or ():
        if isinstance(added, dict):
            by_id[added.get("id")] = added.get("content")
    if not 0 < len(by_id) <= _TOKENS_LIMIT:
        raise ModelCorrupt(f"{TOKENIZER_FILE} has no vocabulary that can be read.", param="model.vocab")
    tokens = [by_id.get(token) for token in range(len(by_id))]
    if not all(isinstance(token, str) for token in tokens):
        raise ModelCorrupt(f"The ids in {TOKENIZER_FILE} are not 0 to {len(by_id) - 1}.", param="model.vocab")
    return [str(token) for token in tokens]


def _template(files: Files) -> str | None:
    """The chat template: a file of its own, else inside the tokenizer's configuration."""
    if TEMPLATE_FILE in files:
        return files.read(TEMPLATE_FILE, _TEMPLATE_LIMIT_BYTES).decode(errors="replace")
    stated = read_object(files, _CONFIG_FILE).get("chat_template") if _CONFIG_FILE in files else None
    return stated if isinstance(stated, str) else None
