"""Describes the router's HTTP surface as an OpenAPI document, made from the models that requests are checked with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web
from pydantic import BaseModel

from router.http.access import Doorkeeper
from router.http.openapi_admin import admin_paths
from shared import __version__
from shared.enrolment import DEVICES_ROUTE, INVITATIONS_ROUTE, Join
from shared.fleet import Heartbeat
from shared.openai.facts import Endpoint
from shared.openai.validation import MODELS

ROUTE = "/openapi.json"
_REF = "#/components/schemas/{model}"
_TITLES = {
    Endpoint.CHAT: "Answer a conversation",
    Endpoint.COMPLETIONS: "Complete a text",
    Endpoint.EMBEDDINGS: "Embed texts",
    Endpoint.RESPONSES: "Answer in the responses API, where a backend has it",
    Endpoint.MESSAGES: "Answer in the messages API, where a backend has it",
}
_FEEDBACK = {
    "type": "object",
    "properties": {
        "decision_id": {"type": "string", "minLength": 1, "maxLength": 128},
        "class": {"enum": ["public", "personal", "secret"]},
    },
    "required": ["decision_id", "class"],
    "additionalProperties": False,
}
_INVITE = {
    "type": "object",
    "properties": {"valid_s": {"type": "integer", "minimum": 1, "maximum": 30 * 24 * 3600}},
    "additionalProperties": False,
}
_HEADERS = (
    ("x-isthmus-route", "Narrows the tier.", {"enum": ["auto", "edge", "cloud"]}),
    ("x-isthmus-privacy", "Tightens the class; loosening takes a scope.", {"enum": ["public", "personal", "secret"]}),
    ("x-session-id", "Turns of one conversation.", {"type": "string", "pattern": "^[!-~]{1,128}$"}),
)
_ERROR: dict[str, Any] = {
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


class OpenApi:
    """Handler of GET /openapi.json."""

    def __init__(self, doorkeeper: Doorkeeper) -> None:
        self._doorkeeper = doorkeeper
        self._body = orjson.dumps(document())

    async def handle(self, request: web.Request) -> web.Response:
        self._doorkeeper.admit(request, None)
        return web.Response(body=self._body, content_type="application/json")


def document() -> dict[str, Any]:
    """The whole document."""
    schemas: dict[str, Any] = {"Error": _ERROR}
    paths: dict[str, Any] = {
        str(endpoint): {
            "post": _operation(
                _TITLES[endpoint], body=_schema(MODELS[endpoint], schemas), headers=True, streams=_can_stream(endpoint)
            )
        }
        for endpoint in Endpoint
    }
    paths["/v1/models"] = {"get": _operation("List the models of the whole fleet")}
    paths |= _fleet_paths(schemas)
    paths["/router/v1/explain"] = {
        "post": _operation(
            "Say where a request would go, and why", body=_schema(MODELS[Endpoint.CHAT], schemas), headers=True
        )
    }
    paths["/router/v1/feedback"] = {"post": _operation("Say which class a request should have had", body=_FEEDBACK)}
    paths |= admin_paths(_operation, _schema(MODELS[Endpoint.CHAT], schemas), _INVITE)
    paths["/healthz"] = {"get": _operation("Whether the process lives", open_to_all=True)}
    paths["/readyz"] = {"get": _operation("Whether it takes work", open_to_all=True)}
    paths["/metrics"] = {"get": _operation("Metrics in the Prometheus text format", answer="text/plain")}
    paths[ROUTE] = {"get": _operation("This document")}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Isthmus router", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _fleet_paths(schemas: dict[str, Any]) -> dict[str, Any]:
    device = [{"name": "device_id", "in": "path", "required": True, "schema": {"type": "string"}}]
    revoke = _operation("Forget a device", status="204")
    revoke["parameters"] = device
    return {
        "/fleet/v1/heartbeats": {"post": _operation("Report a device", body=_schema(Heartbeat, schemas), status="204")},
        "/fleet/v1/backends": {"get": _operation("Show the fleet as decisions see it")},
        INVITATIONS_ROUTE: {"post": _operation("Invite a device", body=_INVITE, status="201")},
        DEVICES_ROUTE: {
            "post": _operation("Join with a token", body=_schema(Join, schemas), status="201", open_to_all=True),
            "get": _operation("List devices"),
        },
        DEVICES_ROUTE + "/{device_id}": {"delete": revoke},
    }


def _can_stream(endpoint: Endpoint) -> bool:
    return "stream" in MODELS[endpoint].model_fields


def _schema(model: type[BaseModel], schemas: dict[str, Any]) -> dict[str, str]:
    """A reference to the schema of `model`, which is put with its parts into `schemas`."""
    whole = model.model_json_schema(ref_template=_REF)
    schemas |= whole.pop("$defs", {})
    schemas[model.__name__] = whole
    return {"$ref": _REF.format(model=model.__name__)}


def _operation(
    summary: str,
    *,
    body: Mapping[str, Any] | None = None,
    headers: bool = False,
    streams: bool = False,
    status: str = "200",
    answer: str = "application/json",
    open_to_all: bool = False,
) -> dict[str, Any]:
    content: dict[str, Any] = {answer: {}, **({"text/event-stream": {}} if streams else {})}
    error = {"schema": {"$ref": _REF.format(model="Error")}}
    refused = {"description": "Refused", "content": {"application/json": error}}
    good: dict[str, Any] = (
        {"description": "Done"} if status in ("204", "308") else {"description": "Done", "content": content}
    )
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {status: good, "default": refused},
        "security": [] if open_to_all else [{"key": []}],
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": dict(body)}}}
    if headers:
        operation["parameters"] = [
            {"name": name, "in": "header", "required": False, "description": text, "schema": schema}
            for name, text, schema in _HEADERS
        ]
    return operation
