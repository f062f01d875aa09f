"""Compares the tokenizer of a package with those of the cloud checkpoints of the same model on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from edge.packages.manifest import TokenizerFacts
from edge.packages.package import Package
from shared.errors import TokenizerMismatch
from shared.pretokenizer import family_of_tag
from shared.tokenizer import TokenizerIdentity, differences, identity_of

_MANIFEST_FILE = "isthmus-checkpoint.json"
_BYTE_LEVEL_BPE = "gpt2"
_PRE_MISMATCH = "pre_tokenizer_mismatch"


class _Checkpoint(BaseModel):
    """The fields of a checkpoint's manifest that matter here: tiers do not import each other."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    package: str
    digest: str


def identity(facts: TokenizerFacts) -> TokenizerIdentity:
    """The facts of a package in the form that tiers compare."""
    is_byte_level = facts.model == _BYTE_LEVEL_BPE
    return TokenizerIdentity(
        tokens=facts.tokens,
        tokens_sha256=facts.tokens_sha256,
        special_ids=facts.special_ids,
        chat_template_sha256=facts.chat_template_sha256,
        pre=family_of_tag(facts.pre or "default") if is_byte_level else None,
        merges_sha256=facts.merges_sha256,
        adds=facts.adds,
    )


def check_parity(package: Package, checkpoints: Path) -> None:
    """Compare with every checkpoint below `checkpoints` that was made from a package of this name.

    Raises:
        TokenizerMismatch: the pre-tokenizer tag is not that of the vocabulary's family, or a checkpoint's token list,
            merges, pre-tokenizer, special ids or chat template differ; names what differs and where.
    """
    facts = package.manifest.model.tokenizer
    if _PRE_MISMATCH in facts.findings:
        raise TokenizerMismatch(
            f"{package.name}: the pre-tokenizer tag is {facts.pre or 'missing'}, which is not that of this "
            "vocabulary's family; texts will have other token counts than elsewhere.",
            param="tokenizer.pre",
        )
    for folder in _checkpoints_of(package.name, checkpoints):
        other = identity_of(folder)
        if other is not None and (found := differences(identity(facts), other)):
            raise TokenizerMismatch(
                f"{package.name} and the cloud checkpoint {folder.name} differ in how they tokenize: "
                f"{'; '.join(found)}.",
                param="tokenizer",
            )


def _checkpoints_of(name: str, root: Path) -> Iterator[Path]:
    if not root.is_dir():
        return
    for folder in sorted(root.iterdir()):
        try:
            stated = _Checkpoint.model_validate_json((folder / _MANIFEST_FILE).read_bytes())
        except (OSError, ValidationError):
            continue
        if stated.package == name:
            yield folder
