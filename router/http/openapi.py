"""Describes the router's HTTP surface as an OpenAPI document, made from the models that requests are checked with."""

from __future__ import annotations

from typing import Any

import orjson
from aiohttp import web

from router.http.access import Doorkeeper
from router.http.openapi_admin import admin_paths
from shared.enrolment import DEVICES_ROUTE, INVITATIONS_ROUTE, Join
from shared.fleet import Heartbeat
from shared.http import described
from shared.http.described import ERROR_SCHEMAS, operation, parameter, schema_of
from shared.openai.facts import Endpoint
from shared.openai.validation import MODELS

ROUTE = "/openapi.json"
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
_HEADERS = tuple(
    parameter(name, "header", schema, text)
    for name, text, schema in (
        ("x-isthmus-route", "Narrows the tier.", {"enum": ["auto", "edge", "cloud"]}),
        (
            "x-isthmus-privacy",
            "Tightens the class; loosening takes a scope.",
            {"enum": ["public", "personal", "secret"]},
        ),
        ("x-session-id", "Turns of one conversation.", {"type": "string", "pattern": "^[!-~]{1,128}$"}),
    )
)


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
    schemas: dict[str, Any] = dict(ERROR_SCHEMAS)
    chat = schema_of(MODELS[Endpoint.CHAT], schemas)
    paths: dict[str, Any] = {
        str(endpoint): {
            "post": operation(
                _TITLES[endpoint],
                body=schema_of(MODELS[endpoint], schemas),
                parameters=_HEADERS,
                stream="text/event-stream" if "stream" in MODELS[endpoint].model_fields else None,
            )
        }
        for endpoint in Endpoint
    }
    paths["/v1/models"] = {"get": operation("List the models of the whole fleet")}
    paths |= _fleet_paths(schemas)
    paths["/router/v1/explain"] = {
        "post": operation("Say where a request would go, and why", body=chat, parameters=_HEADERS)
    }
    paths["/router/v1/feedback"] = {"post": operation("Say which class a request should have had", body=_FEEDBACK)}
    paths |= admin_paths(chat, _INVITE, _HEADERS)
    paths["/healthz"] = {"get": operation("Whether the process lives", open_to_all=True)}
    paths["/readyz"] = {"get": operation("Whether it takes work", open_to_all=True)}
    paths["/metrics"] = {"get": operation("Metrics in the Prometheus text format", answer="text/plain")}
    paths[ROUTE] = {"get": operation("This document")}
    return described.document("Isthmus router", paths, schemas)


def _fleet_paths(schemas: dict[str, Any]) -> dict[str, Any]:
    device = parameter("device_id", "path", {"type": "string"})
    return {
        "/fleet/v1/heartbeats": {
            "post": operation("Report a device", body=schema_of(Heartbeat, schemas), status="204")
        },
        "/fleet/v1/backends": {"get": operation("Show the fleet as decisions see it")},
        INVITATIONS_ROUTE: {"post": operation("Invite a device", body=_INVITE, status="201")},
        DEVICES_ROUTE: {
            "post": operation("Join with a token", body=schema_of(Join, schemas), status="201", open_to_all=True),
            "get": operation("List devices"),
        },
        DEVICES_ROUTE + "/{device_id}": {"delete": operation("Forget a device", status="204", parameters=(device,))},
    }
