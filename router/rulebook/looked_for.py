"""What an operator looks for beside what the scanner knows: patterns and words, in the settings or in a policy file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from router.rulebook.defaults import Frozen
from shared.privacy import PrivacyClass

Kind = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
FoundClass = Literal[PrivacyClass.PERSONAL, PrivacyClass.SECRET]


class PatternSettings(Frozen):
    """A regular expression of your own, matched in time linear in the text: without look-around and back-references."""

    kind: Kind = Field(description="Kind of what it finds, such as badge_number.")
    pattern: str = Field(min_length=1, max_length=2_000, description="What is looked for in the folded text.")
    ignore_case: bool = Field(default=False, description="Whether capital and small letters are the same.")
    privacy_class: FoundClass = Field(PrivacyClass.PERSONAL, description="Class of a text that holds one.")


class WordList(Frozen):
    """Words of your own, such as names of projects or customers, found in any case."""

    kind: Kind = Field(description="Kind of what it finds, such as project_name.")
    words: tuple[str, ...] = Field(default=(), max_length=10_000, description="The words.")
    privacy_class: FoundClass = Field(PrivacyClass.PERSONAL, description="Class of a text that holds one.")


def digest_of(patterns: Sequence[PatternSettings], word_lists: Sequence[WordList]) -> str | None:
    """The name of what is looked for, which is itself not written down: sha256 over its canonical JSON; None for
    nothing."""
    if not patterns and not word_lists:
        return None
    values = [[each.model_dump(mode="json") for each in some] for some in (patterns, word_lists)]
    return "sha256:" + hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
