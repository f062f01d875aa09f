"""Builds the recognisers of what an operator looks for; one that cannot work is refused by its name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from router.privacy.plugins.own import pattern_recogniser, word_recogniser
from router.privacy.recognisers.model import Recogniser
from router.rulebook.looked_for import PatternSettings, WordList


def recognisers_of(
    patterns: Sequence[PatternSettings], word_lists: Sequence[WordList], *, below: str = ""
) -> Iterator[Recogniser]:
    """A recogniser for each pattern and list, in that order. `below` is what their names begin with in messages.

    Raises:
        SettingsError: one of them cannot be used; `param` names it.
    """
    for index, each in enumerate(patterns):
        yield pattern_recogniser(
            each.kind,
            each.pattern,
            each.privacy_class,
            ignore_case=each.ignore_case,
            setting=f"{below}patterns[{index}]",
        )
    for index, words in enumerate(word_lists):
        yield word_recogniser(words.kind, words.words, words.privacy_class, setting=f"{below}word_lists[{index}]")
