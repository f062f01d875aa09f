"""Recognisers from the operator's settings: regular expressions, word lists, and plug-ins by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any

from router.privacy.linear import LinearPatterns
from router.privacy.normalise import Folder, Span
from router.privacy.offline import NetworkUsed, OfflineGuard
from router.privacy.plugins.model import GROUP, GuardedPlugin, Plugin
from router.privacy.recognisers.model import Recogniser, Tick
from shared.errors import IsthmusError, SettingsError
from shared.privacy import PrivacyClass


def pattern_recogniser(
    kind: str, pattern: str, privacy_class: PrivacyClass, *, ignore_case: bool, setting: str
) -> Recogniser:
    """A recogniser for one regular expression, which is matched against the folded text.

    Raises:
        SettingsError: names `setting`.
    """
    patterns = LinearPatterns([pattern], ignore_case=ignore_case, setting=setting)

    def find(text: str, tick: Tick) -> Iterator[Span]:
        for span in patterns.spans(text):
            tick()
            yield span

    return Recogniser(kind, privacy_class, (), find)


def word_recogniser(kind: str, words: Sequence[str], privacy_class: PrivacyClass, *, setting: str) -> Recogniser:
    """A recogniser for words in any case. A word that begins or ends in a Latin letter or digit counts only whole;
    words of scripts without spaces count anywhere.

    Raises:
        SettingsError: names `setting`.
    """
    folder = Folder()
    folded = sorted({folder.view(word.strip()).text for word in words} - {""})
    if not folded:
        raise SettingsError(f"The list {setting} has no words.", param=setting)
    patterns = LinearPatterns([re.escape(word) for word in folded], ignore_case=True, setting=setting)

    def find(text: str, tick: Tick) -> Iterator[Span]:
        for start, end in patterns.spans(text):
            tick()
            if not _goes_on(text, start - 1, start) and not _goes_on(text, end, end - 1):
                yield start, end

    return Recogniser(kind, privacy_class, (), find)


def load_plugin(
    name: str,
    options: Mapping[str, Any],
    guard: OfflineGuard,
    *,
    classes: Mapping[str, PrivacyClass],
    otherwise: PrivacyClass | None,
    least_score: float,
) -> GuardedPlugin:
    """The plug-in with that name, built without the network.

    Raises:
        SettingsError: there is none, or it could not be built.
    """
    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        near = get_close_matches(name, found, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise SettingsError(f"No recogniser named {name} is installed.{hint}", param="router.scan.plugins.name")
    try:
        with guard.reading():
            plugin: Plugin = found[name].load()(options)
    except IsthmusError:
        raise
    except NetworkUsed:
        raise SettingsError(
            f"The recogniser {name} wants the network, which no recogniser gets: install its model first.",
            param="router.scan.plugins.name",
        ) from None
    except Exception as error:  # noqa: BLE001 - somebody else's code; its failure is one line about a setting
        raise SettingsError(
            f"The recogniser {name} could not be built ({type(error).__name__}).", param="router.scan.plugins.name"
        ) from None
    return GuardedPlugin(plugin, guard, classes=classes, otherwise=otherwise, least_score=least_score)


def _goes_on(text: str, at: int, inside: int) -> bool:
    """Whether the Latin word that `inside` belongs to goes on at `at`."""
    return 0 <= at < len(text) and _is_latin(text[at]) and _is_latin(text[inside])


def _is_latin(char: str) -> bool:
    return char.isalnum() and char < "\u0250"
