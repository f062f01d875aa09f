"""The pages of HTTP routes, one for each tier, and their OpenAPI documents as files."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from cloud.openapi import document as cloud_document
from edge.service.openapi import document as edge_document
from generator.tables import code, table
from router.http.openapi import document as router_document

_ERRORS = """Every error has OpenAI's envelope: `{"error": {"message", "type", "param", "code"}}`; [Errors](errors.md)
lists the codes. A key comes as `Authorization: Bearer KEY`, for `/v1/messages` and `/v1/models` also as
`x-api-key: KEY`, and is asked for once there is one ([Keys and limits](../explanation/keys.md)).

"""
_ROUTER = f"""# HTTP API of the router

The router describes itself at `GET /openapi.json`; [openapi.json](openapi.json) is that document of this version.
{_ERRORS}"""
_EDGE = f"""# HTTP API of the edge agent

The agent describes itself at `GET /openapi.json`; [openapi-edge.json](openapi-edge.json) is that document of this
version. Where an agent has keys, what manages adapters takes one of scope `admin`, all else one of scope `inference`.
Routes below `/api` are Ollama's, and tell errors in its words ([compatibility](../explanation/compatibility.md)).
{_ERRORS}"""
_CLOUD = f"""# HTTP API of the cloud tier

What the router, and clients that go around it, find at the address of the cluster;
[openapi-cloud.json](openapi-cloud.json) is the same as an OpenAPI document. The routes are those of the ingress before
the engines, which checks bodies by the same rules as router and agent, and of the capacity application beside it.
{_ERRORS}"""
_DOCUMENTS: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "": (_ROUTER, router_document),
    "-edge": (_EDGE, edge_document),
    "-cloud": (_CLOUD, cloud_document),
}


def openapi(which: str) -> str:
    """The document of one tier, written out."""
    return json.dumps(_DOCUMENTS[which][1](), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def page(which: str) -> str:
    """The routes of one tier, the headers, and the fields of each body."""
    introduction, make = _DOCUMENTS[which]
    described = make()
    operations = [
        (path, method, operation)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    ]
    rows = [(code(f"{method.upper()} {path}"), operation["summary"], _key(operation), _body(operation))
            for path, method, operation in operations]  # fmt: skip
    parts = [introduction, table(("route", "does", "key", "body"), rows)]
    if headers := _parameters(operations, "header"):
        parts += ["\n## Request headers\n\n", headers]
    for name, schema in sorted(described["components"]["schemas"].items()):
        if schema.get("properties") and any(name == _named(operation) for _, _, operation in operations):
            parts.append(f"\n## {name}\n\n{' '.join(schema.get('description', '').split())}\n\n")
            parts.append(table(("field", "kind", "needed", "bounds"), _fields(schema)))
    return "".join(parts)


PAGES: dict[str, Callable[[], str]] = {f"http{which}.md": partial(page, which) for which in _DOCUMENTS} | {
    f"openapi{which}.json": partial(openapi, which) for which in _DOCUMENTS
}


def _key(operation: dict[str, Any]) -> str:
    return "yes" if operation["security"] else "no"


def _schema(operation: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (
        operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    )
    return found


def _named(operation: dict[str, Any]) -> str:
    return str(_schema(operation).get("$ref", "")).rpartition("/")[2]


def _body(operation: dict[str, Any]) -> str:
    if name := _named(operation):
        return f"[{name}](#{name.lower()})"
    return ", ".join(code(name) for name in _schema(operation).get("properties", {}))


def _parameters(operations: list[tuple[str, str, dict[str, Any]]], place: str) -> str:
    """The table of all parameters of one place; nothing where there are none."""
    seen = {
        each["name"]: each
        for _, _, operation in operations
        for each in operation.get("parameters", ())
        if each["in"] == place
    }
    rows = [(code(name), _kind(each["schema"]), each.get("description", "")) for name, each in seen.items()]
    return table(("header", "values", "meaning"), rows) if rows else ""


def _fields(schema: dict[str, Any]) -> list[tuple[str, ...]]:
    needed = set(schema.get("required", ()))
    return [
        (code(name), _kind(field), "yes" if name in needed else "no", _bounds(field))
        for name, field in schema["properties"].items()
    ]


def _kind(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(code(str(value)) for value in schema["enum"])
    if "const" in schema:
        return code(str(schema["const"]))
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(each) for each in schema["anyOf"]))
    kind = schema.get("type", "any")
    names = kind if isinstance(kind, list) else [kind]
    inner = f" of {_kind(schema['items'])}" if "items" in schema else ""
    return " or ".join(str(name) for name in names) + inner


def _bounds(schema: dict[str, Any]) -> str:
    parts = [schema, *schema.get("anyOf", ())]
    return ", ".join(
        dict.fromkeys(f"{sign} {part[name]}" for part in parts for name, sign in _SIGNS.items() if name in part)
    )


_SIGNS = {
    "minimum": "≥",
    "exclusiveMinimum": ">",
    "maximum": "≤",
    "exclusiveMaximum": "<",
    "minLength": "at least this long:",
    "maxLength": "at most this long:",
    "minItems": "items ≥",
    "maxItems": "items ≤",
}
