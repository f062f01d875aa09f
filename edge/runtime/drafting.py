"""Decides whether an installed package may draft for another one."""

from __future__ import annotations

from dataclasses import dataclass

from edge.memory.capacity import Draft
from edge.packages.package import Package
from edge.scheduling.draft import Mismatch, Vocabulary, vocabulary_mismatch
from shared.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Drafting:
    """A draft model, and in what its vocabulary differs from the target's: then it is never started."""

    package: Package
    mismatch: Mismatch | None

    @property
    def memory(self) -> Draft | None:
        """What a plan sets aside for it; None where it will not run."""
        if self.mismatch is not None:
            return None
        return Draft(self.package.manifest.geometry, self.package.manifest.model_file.size_bytes)


def drafting(target: Package, draft: Package) -> Drafting:
    """Compare the two by what was read from their files when they were installed.

    Raises:
        SettingsError: one of them is no GGUF package.
    """
    for package in (target, draft):
        if package.manifest.model.format != "gguf":
            raise SettingsError(
                f"{package.name} is no GGUF package; only those draft and are drafted for.", param="speculation.draft"
            )
    return Drafting(draft, vocabulary_mismatch(vocabulary_of(target), vocabulary_of(draft)))


def vocabulary_of(package: Package) -> Vocabulary:
    """What the ids of its tokenizer mean."""
    facts = package.manifest.model.tokenizer
    return Vocabulary(facts.tokens, facts.tokens_sha256, facts.special_ids)
