"""Typed placeholders for values that must not travel, and the way back from one to its value.

`[CARD_1]` stands for the first card of a conversation wherever it is written again, in whatever grouping. The map
lives in memory alone, for one request or one session, and has a bound. Where several processes serve a session, one of
them gives out its names, and the others learn them.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol
from urllib.parse import unquote

MAX_VALUES = 4_096
MAX_VALUE_CHARS = 1024 * 1024
"""Characters of all values of one map together."""
MAX_PLACEHOLDER_CHARS = 64
MAX_TAKEN = 65_536
"""Names that texts of the caller already say, and that are therefore never given out."""
_PLACEHOLDER = re.compile(r"(?i)\[([a-z][a-z0-9]*(?:\\{0,2}_[a-z0-9]+)*\\{0,2}_[0-9]{1,5})\\{0,2}\]")
"""As it was sent, in any case, or with the backslashes that Markdown wants before an underscore."""
_NAME = re.compile(r"(?i)(?<![a-z0-9])([a-z][a-z0-9]{0,40}(?:\\{0,2}_[a-z0-9]{1,40}){0,8}\\{0,2}_[0-9]{1,5})(?![0-9])")
"""A placeholder's name in any brackets, or in none."""
_ESCAPE = re.compile(r"\\{1,4}(?:u\{?([0-9A-Fa-f]{4})\}?|x([0-9A-Fa-f]{2}))")
_MAX_ESCAPES = 3
_OPENING = re.compile(r"(?i)\[(?:[a-z][a-z0-9_\\]*)?\Z")
_SPACES = re.compile(r"\s+")
_MAX_NUMBER_CHARS = 256
"""What is longer is no number, in whatever grouping."""
_GROUPING = re.compile(r"[\s().\-/]+")


class TooManyValues(Exception):
    """The map is full: the text cannot be masked as a whole."""


class Entry(NamedTuple):
    """One placeholder's name, the kind of its value, and the value."""

    name: str
    kind: str
    value: str


class Source(Protocol):
    """Where the placeholders of one conversation come from."""

    @property
    def chars(self) -> int:
        """Characters of the values that are held here."""

    async def prepared(self, texts: Iterable[str], wanted: Sequence[tuple[str, str]]) -> Placeholders:
        """A map that stands in for what is `wanted` (kind and value, in the order in which names are given), and in
        which no name is given out that `texts` say.

        Raises:
            TooManyValues: there is no room for all of them.
            StateUnavailable: who gives out the names does not answer.
        """


class Room:
    """Characters that several maps may hold together."""

    def __init__(self, chars: int) -> None:
        self._left_chars = chars

    def take(self, chars: int) -> bool:
        """Take `chars`, if so many are left."""
        if chars > self._left_chars:
            return False
        self._left_chars -= chars
        return True

    def give_back(self, chars: int) -> None:
        """Return what an ended map had taken."""
        self._left_chars += chars


class Placeholders:
    """The map of one conversation."""

    def __init__(self, room: Room | None = None, *, gives: bool = True) -> None:
        """`room` is shared with other maps; None: this one has its own. `gives`: new names are given out here."""
        self._gives = gives
        self._room = room or Room(MAX_VALUE_CHARS)
        self._names: dict[tuple[str, str], str] = {}
        self._values: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._taken: set[str] = set()
        self.chars = 0

    def __len__(self) -> int:
        return len(self._values)

    async def prepared(self, texts: Iterable[str], wanted: Sequence[tuple[str, str]]) -> Placeholders:
        """As `Source`: this very map, which gives out names as they are asked for."""
        self.reserve(names_said(texts))
        return self

    def reserve(self, names: Iterable[str]) -> None:
        """Never give out `names`: an answer may write one as the caller meant it.

        Raises:
            TooManyValues: they are more than can be remembered.
        """
        self._taken.update(name for name in names if name not in self._values)
        if len(self._taken) > MAX_TAKEN:
            raise TooManyValues

    def entries(self, after: int = 0) -> list[Entry]:
        """What was given out, in that order, without the first `after`."""
        return [Entry(name, kind, self._values[name]) for (kind, _), name in islice(self._names.items(), after, None)]

    def learn(self, entry: Entry) -> None:
        """Take over what another process gave out.

        Raises:
            TooManyValues: the map is full.
        """
        if entry.name not in self._values:
            self._make_room(entry.value)
            self._keep((entry.kind, _identity(entry.value)), entry.name, entry.value)

    def stand_in(self, kind: str, value: str) -> str:
        """The placeholder of `value`: the same one each time.

        Raises:
            TooManyValues: the map is full, or its names are given out elsewhere and this value has none.
        """
        identity = (kind, _identity(value))
        name = self._names.get(identity)
        if name is None:
            if not self._gives:
                raise TooManyValues
            self._make_room(value)
            name = self._next_name(kind)
            self._keep(identity, name, value)
        return f"[{name}]"

    def restored(self, text: str, written: Callable[[str], str]) -> str:
        """`text` with every placeholder of this map replaced by `written(value)`; others stay as they are."""
        if "[" not in text:
            return text

        def value_of(match: re.Match[str]) -> str:
            value = self._values.get(_plain(match[1]))
            return match[0] if value is None else written(value)

        return _PLACEHOLDER.sub(value_of, text)

    def _make_room(self, value: str) -> None:
        within = len(self._values) < MAX_VALUES and self.chars + len(value) <= MAX_VALUE_CHARS
        if not within or not self._room.take(len(value)):
            raise TooManyValues

    def _keep(self, identity: tuple[str, str], name: str, value: str) -> None:
        self._names[identity] = name
        self._values[name] = value
        self.chars += len(value)

    def _next_name(self, kind: str) -> str:
        stem = re.sub(r"[^A-Z0-9]+", "_", kind.upper()).strip("_")[:40] or "VALUE"
        while True:
            self._counts[stem] = number = self._counts.get(stem, 0) + 1
            if (name := f"{stem}_{number}") not in self._taken:
                return name


class Restorer:
    """Puts values back into one text that comes in pieces. What may be the head of a placeholder is held back, at
    most `MAX_PLACEHOLDER_CHARS` characters of it."""

    def __init__(self, placeholders: Placeholders, written: Callable[[str], str]) -> None:
        """`written` writes a value as this text wants it, such as with the escapes of a JSON string."""
        self._placeholders = placeholders
        self._written = written
        self._held = ""

    def feed(self, piece: str) -> str:
        """What can be passed on now."""
        text = self._held + piece
        opening = _OPENING.search(text, max(0, len(text) - MAX_PLACEHOLDER_CHARS))
        cut = opening.start() if opening else len(text)
        self._held = text[cut:]
        return self._placeholders.restored(text[:cut], self._written)

    def end(self) -> str:
        """What was still held back."""
        held, self._held = self._held, ""
        return held


def names_said(texts: Iterable[str]) -> set[str]:
    """Names of placeholders that `texts` say, in whatever brackets, escapes and characters."""
    return {name for text in texts for form in _forms_of(text) for name in _names_in(form)}


def _names_in(text: str) -> Iterator[str]:
    return (_plain(match[1]) for match in _NAME.finditer(text))


def _forms_of(text: str) -> Iterator[str]:
    """The text as it is, without its escapes, and with plain characters instead of those that look like them."""
    yield text
    for _ in range(_MAX_ESCAPES):
        before = text
        text = unquote(html.unescape(_ESCAPE.sub(_char_of, text)))
        if not text.isascii():
            plain = unicodedata.normalize("NFKC", text)
            text = "".join(char for char in plain if unicodedata.category(char) not in ("Cf", "Mn"))
        if text == before:
            return
        yield text


def _char_of(match: re.Match[str]) -> str:
    return chr(int(match[1] or match[2], 16))


def _plain(name: str) -> str:
    return name.replace("\\", "").upper()


def _identity(value: str) -> str:
    """The same number in another grouping is the same value; letters count as they are written."""
    folded = unicodedata.normalize("NFKC", value)
    if len(folded) <= _MAX_NUMBER_CHARS:
        bare = _GROUPING.sub("", folded)
        if 2 * sum(map(str.isdigit, bare)) >= len(bare):
            return bare
    return _SPACES.sub(" ", folded)
