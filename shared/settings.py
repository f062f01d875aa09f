"""Settings of all tiers: one YAML file with a section a tier, overridden by `ISTHMUS__SECTION__FIELD`.

The only module that reads the process environment. Settings are frozen; an unknown name in the file or in the
environment is refused with the nearest valid one, so that a typing error cannot silently mean the default.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as SettingsSourceError

from shared.errors import SettingsError

SECTIONS = ("up", "edge", "router", "cloud", "loadtest")
SECTION_GROUP = "isthmus.settings"
"""Entry points of the class of each section, by its name."""
PREFIX = "ISTHMUS__"
_SHORT_PREFIXES = tuple(f"ISTHMUS_{section.upper()}__" for section in SECTIONS)
FILE_VARIABLE = "ISTHMUS_CONFIG"
HOME_VARIABLE = "ISTHMUS_HOME"

_file_values: ContextVar[dict[str, Any]] = ContextVar("isthmus_file_values", default={})  # noqa: B039 - never written to
"""The section being loaded, for the lowest source; set only inside `load`."""

S = TypeVar("S", bound="SectionSettings")


class SectionSettings(BaseSettings):
    """Base of one section. Subclasses name it: `class EdgeSettings(SectionSettings, section="edge")`."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    @classmethod
    def __pydantic_init_subclass__(cls, *, section: str = "", **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        if section:
            cls.model_config["env_prefix"] = f"{PREFIX}{section.upper()}__"

    def __init_subclass__(cls, *, section: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=_file_values.get())


def environment() -> Mapping[str, str]:
    """The process environment, for adapters that start child processes or find the user's folder."""
    return os.environ


def home() -> Path:
    """The folder for models, keys and state: `$ISTHMUS_HOME`, else `~/.isthmus`."""
    return Path(os.environ.get(HOME_VARIABLE) or Path.home() / ".isthmus").expanduser().absolute()


def load(cls: type[S], section: str, path: Path | None = None, **overrides: Any) -> S:
    """Read `section` from the YAML file at `path` (default: `$ISTHMUS_CONFIG`), then the environment over it.

    `overrides` come from the command line and win over both; None means not given.

    Raises:
        SettingsError: `param` is the dotted name of the setting, such as `router.limits.body_bytes`.
    """
    _refuse_unknown_environment(cls, section)
    return _build(cls, section, _section_of_file(path or _default_path(), section), overrides)


def check(section: str, path: Path | None = None) -> None:
    """Read a section as whoever owns it would, and keep nothing of it; raises as `load`. What is not installed here
    has no values that could be wrong."""
    for point in entry_points(group=SECTION_GROUP, name=section):
        try:
            owner = point.load()
        except ImportError:
            return
        load(owner, section, path)


def load_part(cls: type[S], section: str, path: Path | None = None) -> S:
    """Read only the fields of `cls` from a section whose other fields belong to someone else; raises as `load`."""
    values = _section_of_file(path or _default_path(), section)
    return _build(cls, section, {name: values[name] for name in cls.model_fields if name in values}, {})


def _build(cls: type[S], section: str, values: dict[str, Any], overrides: dict[str, Any]) -> S:
    token = _file_values.set(values)
    try:
        return cls(**{name: value for name, value in overrides.items() if value is not None})
    except ValidationError as error:
        raise _translated(cls, section, error, overrides) from None
    except SettingsSourceError as error:
        raise SettingsError(f"{PREFIX}{section.upper()}: {error}.", param=section) from None
    finally:
        _file_values.reset(token)


def _default_path() -> Path | None:
    return Path(named) if (named := os.environ.get(FILE_VARIABLE)) else None


def _section_of_file(path: Path | None, section: str) -> dict[str, Any]:
    if path is None:
        return {}
    import yaml  # noqa: PLC0415 - most starts have no file

    from shared.strict_yaml import strict_yaml  # noqa: PLC0415

    try:
        document = strict_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"The settings file {path} does not exist.", param="config") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        at = getattr(error, "problem_mark", None)
        where = f" (line {at.line + 1})" if at else ""
        problem = getattr(error, "problem", None)
        why = f": {problem}" if problem and "stands twice" in problem else ""
        raise SettingsError(f"The settings file {path} cannot be read as YAML{where}{why}.", param="config") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise SettingsError(f"The settings file {path} must be a mapping of sections.", param="config")
    for name in document:
        if name not in SECTIONS:
            raise SettingsError(f"Unknown section {name} in {path}.{_section_hint(str(name))}", param=str(name))
    values = document.get(section)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SettingsError(f"Section {section} must be a mapping.", param=section)
    return values


def _refuse_unknown_environment(cls: type[BaseModel], section: str) -> None:
    known = set(_names(cls))
    prefix = f"{PREFIX}{section.upper()}__"
    for variable in os.environ:
        if variable.startswith(_SHORT_PREFIXES):  # one underscore less; `ISTHMUS_ROUTER_PORT` may be Kubernetes' own
            hint = f" Did you mean {PREFIX}{variable.removeprefix('ISTHMUS_')}?"
            raise SettingsError(f"Unknown environment variable {variable}.{hint}", param=variable)
        if not variable.startswith(PREFIX):
            continue
        named, _, rest = variable.removeprefix(PREFIX).partition("__")
        if named.lower() not in SECTIONS or not rest:
            hint = _section_hint(named.lower()) if rest else f" Settings are named {PREFIX}SECTION__FIELD."
            raise SettingsError(f"Unknown environment variable {variable}.{hint}", param=variable)
        if variable.startswith(prefix):
            name = variable.removeprefix(prefix).lower()
            if not any(name == k or (name.startswith(f"{k}__") and _is_mapping(cls, k)) for k in known):
                near = _nearest(name, known)
                hint = f" Did you mean {prefix}{near.upper()}?" if near else ""
                raise SettingsError(f"Unknown environment variable {variable}.{hint}", param=variable)


def _names(cls: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in cls.model_fields.items():
        yield prefix + name
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from _names(kind, f"{prefix}{name}__")


def _is_mapping(cls: type[BaseModel], name: str) -> bool:
    field = cls.model_fields.get(name)
    return field is not None and getattr(field.annotation, "__origin__", None) is dict


def _nearest(name: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def _section_hint(name: str) -> str:
    near = _nearest(name, SECTIONS)
    return f" Did you mean {near}?" if near else f" There are {', '.join(SECTIONS)}."


def _translated(
    cls: type[BaseModel], section: str, error: ValidationError, overrides: Mapping[str, Any]
) -> SettingsError:
    first = error.errors(include_url=False, include_input=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    hint = ""
    if first["type"] == "extra_forbidden":
        near = _nearest(name.replace(".", "__"), set(_names(cls)))
        hint = f" Did you mean {near.replace('__', '.')}?" if near else ""
    message = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
    given = first["loc"][:1] and overrides.get(str(first["loc"][0])) is not None
    variable = None if given else _variable_of((section, *map(str, first["loc"])))
    where = f" ({variable})" if variable else ""
    return SettingsError(f"Setting {section}.{name}{where}: {message}.{hint}", param=f"{section}.{name}")


def _variable_of(names: tuple[str, ...]) -> str | None:
    """The variable of the environment that sets what is called so, by itself or among others as JSON; None: none does,
    so that it stands in the file."""
    for count in range(len(names), 1, -1):
        wanted = PREFIX + "__".join(names[:count]).upper()
        inner = [f'"{name}"' for name in names[count:] if not name.isdecimal()]
        for variable, value in os.environ.items():
            if variable.upper() == wanted and all(each in value for each in inner):
                return variable
    return None
