"""Decides whether a draft model may speak for a target at all: ids must mean the same to both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What token ids mean: how many there are, a hash over their texts in order, and the special ones."""

    tokens: int
    tokens_sha256: str
    special_ids: Mapping[str, int]


class Mismatch(StrEnum):
    """Why two vocabularies differ. As a metric's reason all of them are `vocab_mismatch`."""

    SIZE = "size"
    TEXT = "text"
    SPECIAL_IDS = "special_ids"


def vocabulary_mismatch(target: Vocabulary, draft: Vocabulary) -> Mismatch | None:
    """The first difference, or None where every id means the same to both.

    A draft proposes ids; where one means another text to the target, what is accepted turns to garbage silently.
    """
    if target.tokens != draft.tokens:
        return Mismatch.SIZE
    if target.tokens_sha256 != draft.tokens_sha256:
        return Mismatch.TEXT
    if dict(target.special_ids) != dict(draft.special_ids):
        return Mismatch.SPECIAL_IDS
    return None
