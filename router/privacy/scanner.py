"""Scans the texts of a body and concludes a class: what was found and where, never the values.

Three stages, each only where the one before says so: fold the text, ask the one-pass database which recognisers
and encodings could apply, run those. A text that cannot be scanned to its end makes the whole body `unknown`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from router.privacy import encodings
from router.privacy.database import compiled
from router.privacy.kept_patterns import KeptPatterns
from router.privacy.model import Classification, Entity
from router.privacy.normalise import Folder, Span, View, ascii_of, within
from router.privacy.plugins.model import GuardedPlugin
from router.privacy.recognisers import built_in
from router.privacy.recognisers.model import Recogniser
from shared.openai.text import TextPosition
from shared.privacy import PrivacyClass, strictest

MAX_DEPTH = 3
"""Encodings undone inside one another; what is encoded more deeply makes the body unknown."""
DEFAULT_LIMIT_CHARS = 16 * 1024 * 1024
"""Characters scanned for one body, decoded ones included; beyond it the body is unknown."""
MAX_ENTITIES = 4_096
_TICKS_PER_CHECK = 256
_ROLES = ("user", "assistant", "system", "developer", "tool", "function")
"""Words that stand in every request; with patterns of an operator's own even they may be findings."""
_MOST_CLEAN = 64
_PIECE_CHARS = 16
"""Letters alone that are more than a word of a sentence."""


class _Stopped(Exception):
    """The scan cannot be finished; `cause` says why."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause)
        self.cause = cause


class Scanner:
    """A compiled scanner, safe to use from many threads."""

    def __init__(
        self,
        recognisers: Sequence[Recogniser] | None = None,
        *,
        plugins: Sequence[GuardedPlugin] = (),
        limit_chars: int = DEFAULT_LIMIT_CHARS,
        kept: KeptPatterns | None = None,
    ) -> None:
        """`recognisers` are all of this package's own unless given."""
        self._plugins = tuple(plugins)
        self._recognisers = tuple(built_in() if recognisers is None else recognisers)
        self._untriggered = tuple(r for r in self._recognisers if not r.triggers)
        self._limit_chars = limit_chars
        self._folder = Folder()
        first = len(self._recognisers)
        self._media, self._naming = first + len(encodings.ALL), first + len(encodings.ALL) + 1
        self._of_named = {number for number, each in enumerate(encodings.ALL, first) if each.of_named}
        self._database = compiled(patterns_of(self._recognisers), kept)
        self._clean = self._clean_roles()

    def with_more(self, own: Sequence[Recogniser]) -> Scanner:
        """The same scanner, which finds what `own` finds too. They have no triggers: nothing is compiled anew."""
        wider = copy.copy(self)
        wider._untriggered = (*self._untriggered, *own)
        wider._clean = wider._clean_roles()
        return wider

    def scan(self, texts: Iterable[TextPosition], *, expired: Callable[[], bool] | None = None) -> Classification:
        """The conclusion over `texts`. `expired` is asked often; once it is true the scan ends as `unknown`."""
        run = _Run(self._limit_chars, expired)
        cause: str | None = None
        try:
            for text in texts:
                if text.text in self._clean:
                    continue
                before = len(run.entities)
                for view in self._folder.views(text.text):
                    self._scan_view(run, text, view, MAX_DEPTH)
                if text.position == "model" and len(run.entities) == before and not run.unread:
                    self._note_model(text.text)
        except _Stopped as stopped:
            cause = stopped.cause
        if cause is None and run.unread:
            cause = "undecodable"
        privacy_class = PrivacyClass.UNKNOWN if cause else strictest(*run.classes)
        return Classification(privacy_class, tuple(run.entities), complete=cause is None, cause=cause)

    def _note_model(self, name: str) -> None:
        """Remember the name of a model that holds nothing: nearly every request names one of a few."""
        if len(self._clean) < _MOST_CLEAN and not self._plugins:
            self._clean.add(name)

    def _clean_roles(self) -> set[str]:
        return set() if self._plugins else {word for word in _ROLES if self._holds_nothing(word)}

    def _holds_nothing(self, word: str) -> bool:
        """Whether nothing is found in a word by itself."""
        run = _Run(self._limit_chars, None)
        self._scan_view(run, TextPosition("role", word), self._folder.view(word), MAX_DEPTH)
        return not run.entities and not run.unread

    def _scan_view(self, run: _Run, text: TextPosition, view: View, depth: int, layout: int = -1) -> None:
        """Read a view, and what is written inside it. `layout` is the layout that it was made from: one that comes
        later holds no more than was there, so that it takes nothing of the depth."""
        run.spend(len(view.text))
        numbers = self._database.numbers_in(ascii_of(view.text))
        for number in numbers:
            run.check()
            if number < len(self._recognisers):
                self._recognise(run, text, view, self._recognisers[number])
            elif number == self._media:
                run.unread = run.unread or encodings.holds_media(view.text)
            elif number < self._media and (
                number not in self._of_named or self._naming in numbers or not view.text.isascii()
            ):
                is_layout = encodings.ALL[number - len(self._recognisers)].is_layout
                is_free = is_layout and number > layout
                for inner in self._decoded(run, view, number):
                    if depth == 0 and not is_free:
                        raise _Stopped("overflow")
                    self._scan_view(run, text, inner, depth - (not is_free), number if is_layout else -1)
        for recogniser in self._untriggered:
            self._recognise(run, text, view, recogniser)
        for plugin in self._plugins:
            for finding, privacy_class in plugin.read(view.text, run.tick):
                span = finding.start, finding.end
                self._note(run, text, view, span, finding.kind, finding.score, privacy_class)

    def _decoded(self, run: _Run, view: View, number: int) -> Iterator[View]:
        for inner in encodings.ALL[number - len(self._recognisers)].decode(view):
            if inner is None:
                run.unread = True
                continue
            for folded in self._folder.views(inner.text):
                yield within(inner, folded)

    def _recognise(self, run: _Run, text: TextPosition, view: View, recogniser: Recogniser) -> None:
        for span in recogniser.find(view.text, run.tick):
            self._note(run, text, view, span, recogniser.kind, recogniser.score, recogniser.privacy_class)

    def _note(
        self,
        run: _Run,
        text: TextPosition,
        view: View,
        span: Span,
        kind: str,
        score: float,
        privacy_class: PrivacyClass,
    ) -> None:
        start, end = view.to_sent(span)
        value = text.text[start:end]
        # In joined texts, most of what lies within one was found there; what needed a word from another was not.
        if not text.is_within_one(start, end) or not run.knows(kind, value):
            run.add(Entity(kind, text.position, start, end, score, _is_cut(text, start, end)), privacy_class, value)


def _is_cut(text: TextPosition, start: int, end: int) -> bool:
    """Whether a finding consists of pieces of several texts. A word behind a token that ends a turn is no piece."""
    bounds = [start, *(seam for seam in text.seams if start < seam < end), end]
    pieces = [text.text[left:right] for left, right in pairwise(bounds)]
    return sum(len(piece) >= _PIECE_CHARS or any(map(str.isdigit, piece)) for piece in pieces) > 1


def patterns_of(recognisers: Sequence[Recogniser]) -> list[tuple[int, bytes]]:
    """What the one-pass database is asked: a number for each recogniser, then for each encoding, then for
    media, then for words that say what values are."""
    readers = [
        *(each.triggers for each in recognisers),
        *(each.triggers for each in encodings.ALL),
        (encodings.MEDIA_TRIGGER,),
        encodings.NAMING_TRIGGERS,
    ]
    return [(number, trigger) for number, triggers in enumerate(readers) for trigger in triggers]


class _Run:
    """Findings and limits of one scan."""

    def __init__(self, limit_chars: int, expired: Callable[[], bool] | None) -> None:
        self.entities: dict[Entity, None] = {}
        self.classes: set[PrivacyClass] = set()
        self.unread = False
        self._values: set[tuple[str, str]] = set()  # ends with the scan; nothing of it goes into the conclusion
        self._left_chars = limit_chars
        self._expired = expired
        self._ticks = 0

    def tick(self) -> None:
        self._ticks += 1
        if self._ticks % _TICKS_PER_CHECK == 0:
            self.check()

    def check(self) -> None:
        if self._expired is not None and self._expired():
            raise _Stopped("timeout")

    def spend(self, chars: int) -> None:
        self.check()
        self._left_chars -= chars
        if self._left_chars < 0:
            raise _Stopped("overflow")

    def knows(self, kind: str, value: str) -> bool:
        """Whether the same was found before in this body."""
        return (kind, value) in self._values

    def add(self, entity: Entity, privacy_class: PrivacyClass, value: str) -> None:
        if len(self.entities) >= MAX_ENTITIES:
            raise _Stopped("overflow")
        self.entities[entity] = None
        self.classes.add(privacy_class)
        self._values.add((entity.kind, value))
