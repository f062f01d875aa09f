"""Adapters for libraries that find names: Presidio, spaCy and GLiNER, each where it and its model are installed.

Options: `presidio`: `language` (en). `spacy`: `model`, a package such as `en_core_web_sm`, and `labels`. `gliner`:
`model`, a folder, `labels`, and `threshold`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from router.privacy.plugins.model import Finding
from shared.errors import SettingsError

_SPACY_LABELS = ("PERSON", "PER")
_GLINER_LABELS = ("person", "address", "date of birth")
_SPACY_SCORE = 0.75
"""spaCy gives no score of its own."""


class PresidioPlugin:
    """Presidio's analyser, with all recognisers that it has for the language."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._language = str(options.get("language", "en"))
        self._analyser = _library("presidio_analyzer").AnalyzerEngine()

    def find(self, text: str) -> Iterable[Finding]:
        found = self._analyser.analyze(text=text, language=self._language)
        return [Finding(_kind(r.entity_type), r.start, r.end, float(r.score)) for r in found]


class SpacyPlugin:
    """The entity recogniser of a spaCy pipeline."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._labels = frozenset(options.get("labels", _SPACY_LABELS))
        self._pipeline = _library("spacy").load(_needed(options, "model"))

    def find(self, text: str) -> Iterable[Finding]:
        entities = self._pipeline(text).ents
        return [
            Finding(_kind(e.label_), e.start_char, e.end_char, _SPACY_SCORE)
            for e in entities
            if e.label_ in self._labels
        ]


class GlinerPlugin:
    """A GLiNER model in a local folder."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._labels = list(options.get("labels", _GLINER_LABELS))
        self._threshold = float(options.get("threshold", 0.5))
        self._model = _library("gliner").GLiNER.from_pretrained(_needed(options, "model"), local_files_only=True)

    def find(self, text: str) -> Iterable[Finding]:
        found = self._model.predict_entities(text, self._labels, threshold=self._threshold)
        return [Finding(_kind(r["label"]), r["start"], r["end"], float(r["score"])) for r in found]


def _kind(label: str) -> str:
    return label.lower().replace(" ", "_")


def _needed(options: Mapping[str, Any], name: str) -> Any:
    if name not in options:
        raise SettingsError(f"This plug-in needs the option {name}.", param=f"router.scan.plugins.options.{name}")
    return options[name]


def _library(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise SettingsError(
            f"This plug-in needs {module}, which is not installed.", param="router.scan.plugins.name"
        ) from None
