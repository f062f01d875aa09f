"""Replaces what a body must not carry by placeholders, and proves on the result that nothing is left.

The masked body is scanned again like any other. Only when that scan finishes and finds nothing is there a masked
body at all; a number cut over two messages, one in a key, or one in a field that takes no placeholder stays on the
edge.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import orjson

from router.privacy.classify import Classifier
from router.privacy.model import Classification, Entity
from router.privacy.placeholders import Placeholders, Source, TooManyValues
from shared.errors import InvalidRequest, StateUnavailable
from shared.openai.facts import Endpoint
from shared.openai.fields import FIELD_SIGN, named_values
from shared.openai.text import TextPosition
from shared.openai.validation import validate
from shared.privacy import PrivacyClass

_NEVER = frozenset({"model", "stream"})
"""Fields that name something: a placeholder there would name something else."""
_LAST = frozenset({"messages", "prompt"})
"""Fields that grow from turn to turn. They are numbered last, so that earlier numbers stay as they were."""


@dataclass(frozen=True, slots=True)
class MaskedBody:
    """A body that may leave, and the map that brings its answer back. `scan` is the conclusion over `raw`."""

    raw: bytes = field(repr=False)
    scan: Classification
    placeholders: Placeholders = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Place:
    """One string of a body: the container that holds it and its index or key there."""

    holder: Any
    at: int | str

    @property
    def text(self) -> str:
        value: str = self.holder[self.at]
        return value

    @property
    def is_json(self) -> bool:
        """Whether the string is JSON by contract, as the arguments of a tool call are."""
        return self.at == "arguments"


class _Finding(NamedTuple):
    """What must not travel, as the text that it stands for, and where in its place it is written."""

    kind: str
    value: str
    start: int
    end: int


class Masker:
    """Masks bodies with the classifier that found what to mask."""

    def __init__(self, classifier: Classifier) -> None:
        self._classifier = classifier

    async def mask(self, endpoint: Endpoint, body: dict[str, Any], source: Source) -> MaskedBody | None:
        """`body` without what was found in it, or None where it cannot be masked as a whole."""
        masked = copy.deepcopy(body)
        places = list(_places(masked))
        size_bytes = sum(len(place.text) for place in places)
        texts = [text for index, place in enumerate(places) for text in _texts_of(index, place)]
        found = await self._classifier.locate(texts, size_bytes=size_bytes)
        if not found.complete:
            return None
        findings = list(_findings(places, found.entities))
        wanted = [(kind, value) for _, values in findings for kind, value, _, _ in values]
        try:
            placeholders = await source.prepared((place.text for place in places), wanted)
            _replace(findings, placeholders)
            validate(endpoint, masked)
        except (TooManyValues, InvalidRequest, StateUnavailable):
            return None
        raw = orjson.dumps(masked)
        again = await self._classifier.classify(masked, size_bytes=len(raw), raw=raw)
        if not again.complete or again.privacy_class is not PrivacyClass.PUBLIC:
            return None
        return MaskedBody(raw, again, placeholders)


def _texts_of(index: int, place: _Place) -> Iterator[TextPosition]:
    """What is scanned for one place: its text, and where a key may say that it is a credential, both together. The
    position says which place it is, and how many characters stand ahead of its text."""
    yield TextPosition(f"{index} 0", place.text)
    if isinstance(place.holder, dict):
        for key, name, value in named_values(place.holder):
            if key == place.at:
                yield TextPosition(f"{index} {len(name) + len(FIELD_SIGN)}", f"{name}{FIELD_SIGN}{value}")


def _places(body: dict[str, Any]) -> Iterator[_Place]:
    """Every string that may be replaced, in the order in which placeholders are numbered."""
    names = [name for name in body if name not in _NEVER]
    for name in sorted(names, key=_LAST.__contains__):
        yield from _strings(body, name)


def _strings(holder: Any, at: int | str) -> Iterator[_Place]:
    value = holder[at]
    if isinstance(value, str):
        yield _Place(holder, at)
    elif isinstance(value, dict):
        for key in value:
            yield from _strings(value, key)
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from _strings(value, index)


def _findings(places: Sequence[_Place], entities: Sequence[Entity]) -> Iterator[tuple[_Place, list[_Finding]]]:
    """What was found in each place, in the order in which placeholders are numbered."""
    by_place: dict[int, list[Entity]] = {}
    for entity in entities:
        index, ahead_chars = map(int, entity.position.split())
        if entity.end > ahead_chars:  # what a key itself holds cannot be replaced, and shows in the next scan
            start = max(0, entity.start - ahead_chars)
            by_place.setdefault(index, []).append(replace(entity, start=start, end=entity.end - ahead_chars))
    for index in sorted(by_place):
        place, found = places[index], []
        for kind, start, end in disjoint(by_place[index]):
            value = place.text[start:end]
            found.append(_Finding(kind, _unescaped(value) if place.is_json else value, start, end))
        yield place, found


def _replace(findings: Sequence[tuple[_Place, list[_Finding]]], placeholders: Placeholders) -> None:
    """Put placeholders into the places.

    Raises:
        TooManyValues: the map has no room for all of them.
    """
    for place, found in findings:
        pieces, behind = [], 0
        for kind, value, start, end in found:
            pieces += [place.text[behind:start], placeholders.stand_in(kind, value)]
            behind = end
        place.holder[place.at] = "".join(pieces) + place.text[behind:]


def disjoint(entities: Sequence[Entity]) -> Iterator[tuple[str, int, int]]:
    """Kind and span of each run of overlapping findings, in order; the longest of a run gives its kind."""
    run: list[Entity] = []
    for entity in sorted(entities, key=lambda e: (e.start, -e.end)):
        if run and entity.start >= max(e.end for e in run):
            yield _united(run)
            run = []
        run.append(entity)
    if run:
        yield _united(run)


def _united(run: Sequence[Entity]) -> tuple[str, int, int]:
    kind = max(run, key=lambda e: (e.end - e.start, e.score)).kind
    return kind, min(e.start for e in run), max(e.end for e in run)


def _unescaped(value: str) -> str:
    """A piece of a JSON string as the text that it stands for."""
    try:
        text = orjson.loads(f'"{value}"')
    except orjson.JSONDecodeError:
        return value
    return str(text)
