"""Describes console and admin API for the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shared.http.described import operation, parameter

_KEY = {
    "type": "object",
    "properties": {"key": {"type": "string"}},
    "required": ["key"],
    "additionalProperties": False,
}
_CLASS = {
    "type": "object",
    "properties": {"class": {"enum": ["public", "personal", "secret"]}},
    "required": ["class"],
    "additionalProperties": False,
}
_CLASSES = {"enum": ["public", "personal", "secret", "unknown"]}
_TEXT = {"type": "string", "maxLength": 256}


def admin_paths(chat: dict[str, Any], invite: dict[str, Any], headers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The paths; `chat` and `invite` are the schemas of their bodies, `headers` those of requests for answers."""
    backend, device = parameter("backend_id", "path", _TEXT), parameter("device_id", "path", _TEXT)
    decision = parameter("decision_id", "path", _TEXT)
    filters = [parameter("class", "query", _CLASSES), parameter("limit", "query", _whole(500))]
    filters += [
        parameter(name, "query", _TEXT) for name in ("tier", "outcome", "reason", "rule", "backend", "key", "model")
    ]

    def one(summary: str, *parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
        return operation(summary, parameters=parameters, **more)

    return {
        "/console": {"get": one("The console, without the slash that its pages need", status="308", open_to_all=True)},
        "/console/{path}": {
            "get": one("A page of the console", parameter("path", "path", _TEXT), answer="text/html", open_to_all=True)
        },
        "/admin/v1/session": {
            "get": one("Say what this caller may do", open_to_all=True),
            "post": one("Sign a browser in", body=_KEY, open_to_all=True),
            "delete": one("Sign a browser out", status="204", open_to_all=True),
        },
        "/admin/v1/live": {"get": one("What happened second by second", parameter("seconds", "query", _whole(900)))},
        "/admin/v1/events": {"get": one("Events as they happen, without end", answer="text/event-stream")},
        "/admin/v1/fleet": {"get": one("Show backends, devices, drains and temperatures")},
        "/admin/v1/backends/{backend_id}/drain": {
            "put": one("Send nothing new to a backend", backend, status="204"),
            "delete": one("Use a drained backend again", backend, status="204"),
        },
        "/admin/v1/devices": {"get": one("List devices")},
        "/admin/v1/devices/{device_id}": {"delete": one("Revoke a device", device, status="204")},
        "/admin/v1/invitations": {"post": one("Invite a device", body=invite, status="201")},
        "/admin/v1/decisions": {"get": one("Find the newest decisions", *filters)},
        "/admin/v1/decisions/{decision_id}": {"get": one("Explain one decision", decision)},
        "/admin/v1/decisions/{decision_id}/feedback": {
            "post": one("Say which class it should have had", decision, body=_CLASS)
        },
        "/admin/v1/policy": {"get": one("Show the policy in force")},
        "/admin/v1/policy/try": {"post": one("Say where a request would go, and why", *headers, body=chat)},
    }


def _whole(most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 1, "maximum": most}
