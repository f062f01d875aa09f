"""What a recogniser from elsewhere must offer, and how the scanner runs one.

A distribution offers a factory under the entry-point group `isthmus.recognisers`; the operator names it in
`router.scan.plugins`, with options that go to the factory. It is built once and asked from several threads, and while
it reads it can reach neither the network nor another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from router.privacy.offline import OfflineGuard
from router.privacy.recognisers.model import Tick
from shared.privacy import PrivacyClass

GROUP = "isthmus.recognisers"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding in a text: its kind, the character span `[start, end)`, and how sure it is (0 to 1)."""

    kind: str
    start: int
    end: int
    score: float


class Plugin(Protocol):
    """A recogniser from elsewhere."""

    def find(self, text: str) -> Iterable[Finding]:
        """Findings in `text`. Whatever it raises makes the body `unknown`."""


Factory = Callable[[Mapping[str, Any]], Plugin]
"""Builds a plug-in from the operator's options; it must not download anything."""


class GuardedPlugin:
    """A plug-in with its classes and its least score, held to its contract."""

    def __init__(
        self,
        plugin: Plugin,
        guard: OfflineGuard,
        *,
        classes: Mapping[str, PrivacyClass],
        otherwise: PrivacyClass | None,
        least_score: float,
    ) -> None:
        """`classes` by kind; `otherwise` is the class of other kinds, None to leave them out."""
        self._plugin = plugin
        self._guard = guard
        self._classes = dict(classes)
        self._otherwise = otherwise
        self._least_score = least_score

    def read(self, text: str, tick: Tick) -> Iterator[tuple[Finding, PrivacyClass]]:
        """Findings that count, with their class.

        Raises:
            ValueError: a span does not lie in the text.
        """
        with self._guard.reading():
            findings = list(self._plugin.find(text))
        for finding in findings:
            tick()
            if not 0 <= finding.start < finding.end <= len(text):
                raise ValueError("a plug-in gave a span outside of the text")
            privacy_class = self._classes.get(finding.kind, self._otherwise)
            if privacy_class is not None and finding.score >= self._least_score:
                yield finding, privacy_class
