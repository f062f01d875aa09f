"""Builds the privacy scanner that the settings describe: built-in recognisers, the operator's own, and plug-ins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from router.privacy.kept_patterns import KeptPatterns
from router.privacy.offline import OfflineGuard
from router.privacy.plugins.model import GuardedPlugin
from router.privacy.plugins.own import load_plugin
from router.privacy.recognisers import built_in
from router.privacy.recognisers.model import Recogniser
from router.privacy.scanner import Scanner
from router.rulebook.finders import recognisers_of
from router.settings import ScanSettings, WordListSettings
from shared.errors import SettingsError

_MAX_WORDS_BYTES = 1024 * 1024


def build_scanner(settings: ScanSettings, *, kept: KeptPatterns | None = None) -> Scanner:
    """The scanner; `kept` makes the next start of the same one quick.

    Raises:
        SettingsError: a pattern, word list or plug-in does not work.
    """
    return Scanner([*built_in(), *_own(settings)], plugins=_plugins(settings), kept=kept)


def _own(settings: ScanSettings) -> Iterator[Recogniser]:
    lists = [
        each.model_copy(update={"words": (*each.words, *_words_of(each, f"router.scan.word_lists[{index}]"))})
        for index, each in enumerate(settings.word_lists)
    ]
    return recognisers_of(settings.patterns, lists, below="router.scan.")


def _words_of(settings: WordListSettings, setting: str) -> list[str]:
    if settings.file is None:
        return []
    path: Path = settings.file.expanduser()
    try:
        if path.stat().st_size > _MAX_WORDS_BYTES:
            raise SettingsError(f"The file {path} of {setting} is larger than a mebibyte.", param=setting)
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = os.strerror(error.errno or 0).lower() if isinstance(error, OSError) else "not text"
        raise SettingsError(f"The file {path} of {setting}: {reason}.", param=setting) from None


def _plugins(settings: ScanSettings) -> list[GuardedPlugin]:
    if not settings.plugins:
        return []
    guard = OfflineGuard()
    return [
        load_plugin(
            each.name,
            each.options,
            guard,
            classes=each.classes,
            otherwise=each.others,
            least_score=each.least_score,
        )
        for each in settings.plugins
    ]
