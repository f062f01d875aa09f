"""Makes OpenAPI documents from the models that requests are checked with: operations, bodies, answers, errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from shared import __version__
from shared.keys import KEY_HEADER, takes_key_header

Json = dict[str, Any]
_ENVELOPE: Json = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}
ERROR_SCHEMAS: Json = {"Error": _ENVELOPE}
"""What every document's schemas begin with."""


def document(title: str, paths: Json, schemas: Json) -> Json:
    """The whole document."""
    for path, methods in paths.items():
        for each in methods.values():
            if takes_key_header(path) and each["security"]:
                each["security"] = [{"key": []}, {"x_api_key": []}]
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "x_api_key": {"type": "apiKey", "in": "header", "name": KEY_HEADER},
            },
        },
    }


def schema_of(model: type[BaseModel], schemas: Json, *, prefix: str = "") -> Json:
    """A reference to the schema of `model`, which is put with its parts into `schemas`; `prefix` keeps the names of two
    APIs apart."""
    template = f"#/components/schemas/{prefix}{{model}}"
    whole = model.model_json_schema(ref_template=template)
    schemas |= {f"{prefix}{name}": part for name, part in whole.pop("$defs", {}).items()}
    schemas[f"{prefix}{model.__name__}"] = whole
    return {"$ref": template.format(model=model.__name__)}


def parameter(name: str, place: str, schema: Json, text: str | None = None) -> Json:
    """One parameter; those of the path are required."""
    made: Json = {"name": name, "in": place, "required": place == "path", "schema": schema}
    return made if text is None else made | {"description": text}


def operation(
    summary: str,
    *,
    body: Mapping[str, Any] | None = None,
    body_type: str = "application/json",
    parameters: Iterable[Json] = (),
    stream: str | None = None,
    status: str = "200",
    answer: str = "application/json",
    open_to_all: bool = False,
    error: str = "Error",
) -> Json:
    """One method of one path. `stream` is the media type of a streamed answer, `error` the schema of a refusal."""
    content: Json = {answer: {}, **({} if stream is None else {stream: {}})}
    told = {"schema": {"$ref": f"#/components/schemas/{error}"}}
    refused = {"description": "Refused", "content": {"application/json": told}}
    good: Json = {"description": "Done"} if status in ("204", "308") else {"description": "Done", "content": content}
    made: Json = {
        "summary": summary,
        "responses": {status: good, "default": refused},
        "security": [] if open_to_all else [{"key": []}],
    }
    if body is not None:
        made["requestBody"] = {"required": True, "content": {body_type: {"schema": dict(body)}}}
    if given := list(parameters):
        made["parameters"] = given
    return made
