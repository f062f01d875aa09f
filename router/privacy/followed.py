"""Reads texts with the scanner of the settings, and for what the policy in force looks for beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from router.privacy.classify import TextScanner
from router.privacy.model import Classification
from router.privacy.recognisers.model import Recogniser
from shared.openai.text import TextPosition


class WideningScanner(TextScanner, Protocol):
    """A scanner that can be asked for more than it was made for."""

    def with_more(self, own: Sequence[Recogniser]) -> TextScanner:
        """One that finds what `own` finds too."""


class FollowedScanner:
    """Safe to use from many threads: a scan that has begun ends with what it began with."""

    def __init__(self, of_settings: WideningScanner) -> None:
        self._of_settings = of_settings
        self._now: TextScanner = of_settings

    def look_for(self, own: Sequence[Recogniser]) -> None:
        """From now on find what `own` finds, and no longer what an earlier policy looked for."""
        self._now = self._of_settings.with_more(own) if own else self._of_settings

    def scan(self, texts: Iterable[TextPosition], *, expired: Callable[[], bool] | None = None) -> Classification:
        """As `TextScanner`."""
        return self._now.scan(texts, expired=expired)
