"""Finds the names that would have been right where a wrong one stands in a document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel

_QUOTED = re.compile(r"'([^']+)'")


def names_at(model: type[BaseModel], error: Mapping[str, Any]) -> list[str]:
    """The valid names for a validation error over `model`: fields beside an unknown one, or members of a closed set."""
    if error["type"] != "extra_forbidden":
        return _QUOTED.findall(str(error.get("ctx", {}).get("expected", "")))
    for part in error["loc"][:-1]:
        if isinstance(part, str):
            model = _model_of_field(model, part) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def homes_of(model: type[BaseModel], name: str) -> Iterator[str]:
    """The fields below `model`, dotted, in which a field of that name would be right."""
    for at, field in model.model_fields.items():
        for inner in _models_in(field.annotation):
            written = field.alias or at
            if name in (each.alias or own for own, each in inner.model_fields.items()):
                yield written
            yield from (f"{written}.{deeper}" for deeper in homes_of(inner, name))


def _model_of_field(model: type[BaseModel], written: str) -> type[BaseModel] | None:
    for name, field in model.model_fields.items():
        if written in (name, field.alias):
            return next(_models_in(field.annotation), None)
    return None


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
