"""Reads the JSON files of packages within bounds, and says which field is at fault."""

from __future__ import annotations

from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from edge.packages.formats.files import Files
from shared.errors import ModelCorrupt

CONFIG_LIMIT_BYTES = 1 << 20
M = TypeVar("M", bound=BaseModel)


def read_object(files: Files, name: str, limit_bytes: int = CONFIG_LIMIT_BYTES) -> dict[str, Any]:
    """The JSON object in `name`.

    Raises:
        ModelCorrupt: it is missing, too long, or no JSON object.
    """
    try:
        value = orjson.loads(files.read(name, limit_bytes))
    except orjson.JSONDecodeError:
        raise ModelCorrupt(f"{name} is not JSON.", param=name) from None
    if not isinstance(value, dict):
        raise ModelCorrupt(f"{name} is no JSON object.", param=name)
    return value


def validated(model: type[M], value: Any, name: str) -> M:
    """`value` from the file `name` as `model`, whose unknown keys are refused.

    Raises:
        ModelCorrupt: a field is missing, unknown or malformed; `param` is its path.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        why = "is not allowed" if first["type"] == "extra_forbidden" else f"is refused: {first['msg']}"
        raise ModelCorrupt(f"{name}: {where or 'the content'} {why}.", param=where or name) from None
