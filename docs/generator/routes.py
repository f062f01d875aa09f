"""The page of HTTP routes, and the OpenAPI document of the router as a file."""

from __future__ import annotations

import json
from typing import Any

from generator.tables import code, table
from router.http.openapi import document

_INTRODUCTION = """# HTTP API of the router

The router describes itself at `GET /openapi.json`; [openapi.json](openapi.json) is that document of this version.
Every error has OpenAI's envelope: `{"error": {"message", "type", "param", "code"}}`; [Errors](errors.md) lists the
codes. A key comes as `Authorization: Bearer KEY`, and is asked for once there is one ([Keys and
limits](../explanation/keys.md)).

"""


def openapi() -> str:
    """The document as the router serves it, written out."""
    return json.dumps(document(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def page() -> str:
    """The routes, the headers, and the fields of each body."""
    described = document()
    operations = [
        (path, method, operation)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    ]
    rows = [(code(f"{method.upper()} {path}"), operation["summary"], _key(operation), _body(operation))
            for path, method, operation in operations]  # fmt: skip
    parts = [
        _INTRODUCTION,
        table(("route", "does", "key", "body"), rows),
        "\n## Request headers\n\n",
        _headers(operations),
    ]
    for name, schema in sorted(described["components"]["schemas"].items()):
        if schema.get("properties") and any(name == _named(operation) for _, _, operation in operations):
            parts.append(f"\n## {name}\n\n{' '.join(schema.get('description', '').split())}\n\n")
            parts.append(table(("field", "kind", "needed", "bounds"), _fields(schema)))
    return "".join(parts)


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


def _headers(operations: list[tuple[str, str, dict[str, Any]]]) -> str:
    seen = {
        each["name"]: each
        for _, _, operation in operations
        for each in operation.get("parameters", ())
        if each["in"] == "header"
    }
    return table(
        ("header", "values", "meaning"),
        [(code(name), _kind(each["schema"]), each["description"]) for name, each in seen.items()],
    )


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
