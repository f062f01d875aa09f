"""The pages of settings: every field of every section, with type, default, bounds and what it is for."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from pathlib import PurePath
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pydantic
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from cloud.settings import CloudSettings
from edge.settings import EdgeSettings
from generator.tables import code, table
from loadtests.settings import LoadtestSettings
from router.settings import RouterSettings
from shared.launcher.settings import UpSettings
from shared.settings import SectionSettings

SECTIONS: dict[str, type[SectionSettings]] = {
    "up": UpSettings,
    "edge": EdgeSettings,
    "router": RouterSettings,
    "cloud": CloudSettings,
    "loadtest": LoadtestSettings,
}
_OF_THE_MACHINE = ("_installed_tiers",)
"""Functions that give a default which differs from machine to machine."""
_SHORT = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null", Any: "any"}
_BOUNDS = {"Ge": ("ge", "≥"), "Gt": ("gt", ">"), "Le": ("le", "≤"), "Lt": ("lt", "<")}
_Parts = dict[str, tuple[type[BaseModel], str]]
"""A model by its name, with the setting that lists it."""
_COLUMNS = ("setting", "kind", "default", "meaning")


def page(section: str) -> str:
    """The page of one section."""
    settings = SECTIONS[section]
    title = f"# Settings: `{section}`\n\n"
    how = (
        f"Section `{section}` of the settings file (`--config FILE` or `$ISTHMUS_CONFIG`). A variable of the "
        f"environment goes over the file: its name is `ISTHMUS__{section.upper()}__`, then the setting in capitals "
        "with `__` for each point. Lists and mappings are given there as JSON. An unknown name is refused.\n\n"
    )
    rows, parts = _rows(settings, section)
    text = title + how + table(_COLUMNS, rows)
    for model, owner in parts.values():
        text += f"\n## Each of `{owner}`\n\n{_about(model)}\n\n" + table(_COLUMNS, _rows(model, "")[0])
    return text


PAGES: dict[str, Callable[[], str]] = {f"settings-{name}.md": partial(page, name) for name in SECTIONS}


def _rows(model: type[BaseModel], prefix: str) -> tuple[list[tuple[str, ...]], _Parts]:
    """Rows of all fields below `model`, and the models that stand in its lists and mappings, by name."""
    rows: list[tuple[str, ...]] = []
    parts: _Parts = {}
    for name, field in model.model_fields.items():
        dotted = f"{prefix}.{name}" if prefix else name
        nested = [kind for kind in _alternatives(field.annotation) if _is_model(kind)]
        unset = "" if nested and field.default is not None else _default(field)
        rows.append((code(dotted), _kind(field), unset, _meaning(field)))
        below = [(kind, dotted) for kind in nested]
        for kind in _inner_models(field.annotation):
            parts.setdefault(kind.__name__, (kind, dotted))
            below.append((kind, f"{dotted}[]"))
        for kind, where in below:
            inner, deeper = _rows(kind, where)
            rows += inner if kind in nested else []
            parts = {**deeper, **parts}
    return rows, dict(sorted(parts.items(), key=lambda part: part[1][1]))


def _alternatives(annotation: Any) -> Iterator[Any]:
    """The kinds of a union, each without its annotations."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for each in get_args(annotation):
            yield from _alternatives(each)
    else:
        yield annotation


def _inner_models(annotation: Any) -> Iterator[type[BaseModel]]:
    for kind in _alternatives(annotation):
        for inner in get_args(kind):
            for each in _alternatives(inner):
                if _is_model(each):
                    yield each


def _is_model(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, BaseModel)


def _kind(field: FieldInfo) -> str:
    names = [_named(kind) for kind in _alternatives(field.annotation)]
    bounds = [
        f"{sign} {getattr(each, attribute):g}"
        for each in field.metadata
        for attribute, sign in [_BOUNDS.get(type(each).__name__, ("", ""))]
        if attribute
    ]
    return ", ".join([" or ".join(dict.fromkeys(names)), *bounds])


def _named(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is Annotated:
        return _named(get_args(kind)[0])
    if origin is Literal:
        return ", ".join(code(_plain(value)) for value in get_args(kind))
    if origin in (Union, types.UnionType):
        return " or ".join(_named(each) for each in get_args(kind))
    if origin in (tuple, list, frozenset, set):
        return f"list of {_named(get_args(kind)[0])}"
    if origin is dict:
        return f"mapping of {_named(get_args(kind)[0])} to {_named(get_args(kind)[1])}"
    if not inspect.isclass(kind):
        return _SHORT.get(kind, "any")
    return _of_class(kind)


def _of_class(kind: type[Any]) -> str:
    if kind in _SHORT:
        return _SHORT[kind]
    if issubclass(kind, pydantic.ByteSize):
        return "bytes, such as `64MiB`"
    if issubclass(kind, Enum):
        return ", ".join(code(_plain(value)) for value in kind)
    if issubclass(kind, BaseModel):
        return "section"
    if issubclass(kind, PurePath):
        return "path"
    return next((text for base, text in _SHORT.items() if inspect.isclass(base) and issubclass(kind, base)), "any")


def _plain(value: Any) -> str:
    return str(value.value) if isinstance(value, Enum) else str(value)


def _default(field: FieldInfo) -> str:
    """What counts where nothing is set."""
    if field.is_required():
        return "required"
    if getattr(field.default_factory, "__name__", "") in _OF_THE_MACHINE:
        return "depends on the machine"
    return code(_shown(field.get_default(call_default_factory=True, validated_data={})))


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, BaseModel):
        given = {name: getattr(value, name) for name in type(value).model_fields if name in value.model_fields_set}
        return "{" + ", ".join(f"{name}: {_shown(each)}" for name, each in given.items()) + "}"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_shown(each) for each in value) + "]"
    if isinstance(value, frozenset):
        return "[" + ", ".join(sorted(_shown(each) for each in value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_shown(name)}: {_shown(each)}" for name, each in value.items()) + "}"
    if isinstance(value, pydantic.ByteSize):
        return value.human_readable(separator="").replace(".0", "")
    return str(value)


def _meaning(field: FieldInfo) -> str:
    kind = next((each for each in _alternatives(field.annotation) if _is_model(each)), None)
    return field.description or (_about(kind) if kind is not None else "")


def _about(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split())
