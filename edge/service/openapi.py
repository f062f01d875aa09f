"""Describes the agent's HTTP surface as an OpenAPI document, made from the models that requests are checked with."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from edge.service.adapters.surface import ROUTE as ADAPTERS
from edge.service.counting import ROUTE as TOKENIZE
from edge.service.ollama import vectors
from edge.service.ollama.dialect import CHAT, GENERATE
from edge.service.ollama.surface import MANAGED
from edge.service.ollama.wire import ChatBody, EmbedBody, GenerateBody, ShowBody
from shared.http import described
from shared.http.described import ERROR_SCHEMAS, operation, parameter, schema_of
from shared.openai.facts import Endpoint
from shared.openai.validation import MODELS

ROUTE = "/openapi.json"
STATUS_ROUTE = "/edge/v1/status"
_TEXT = {"type": "string", "maxLength": 256}
_FILE = {"type": "string", "contentMediaType": "application/octet-stream"}
_OLLAMA_ERROR = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "code": {"type": "string"}, "param": {"type": "string"}},
    "required": ["error", "code"],
}
_ACTIONS = {
    "load": "Load an adapter before it is asked for",
    "unload": "Let an adapter go",
    "pin": "Keep an adapter loaded",
    "unpin": "Let an adapter go when others need the room",
}


def document() -> dict[str, Any]:
    """The whole document."""
    schemas: dict[str, Any] = ERROR_SCHEMAS | {"OllamaError": _OLLAMA_ERROR}
    return described.document("Isthmus edge agent", _own(schemas) | _openai(schemas) | _ollama(schemas), schemas)


def _own(schemas: dict[str, Any]) -> dict[str, Any]:
    name = parameter("name", "path", _TEXT, "`base:name`, as it is asked for.")
    digest = parameter("base_digest", "query", _TEXT, "Digest of the base model that it was made for.")
    register = operation(
        "Register an adapter: its GGUF file",
        body=_FILE,
        body_type="application/octet-stream",
        parameters=(name, digest),
    )
    return {
        "/healthz": {"get": operation("Whether the process lives", open_to_all=True)},
        "/readyz": {"get": operation("Whether it takes work, and why not", open_to_all=True)},
        "/metrics": {
            "get": operation("Metrics of agent and engine in the Prometheus text format", answer="text/plain")
        },
        ROUTE: {"get": operation("This document")},
        STATUS_ROUTE: {"get": operation("What the agent does now: engine, plan, heat, memory, speculation")},
        ADAPTERS: {"get": operation("List adapters")},
        ADAPTERS + "/{name}": {"put": register},
        **{
            f"{ADAPTERS}/{{name}}/{action}": {"post": operation(summary, parameters=(name,))}
            for action, summary in _ACTIONS.items()
        },
    }


def _openai(schemas: dict[str, Any]) -> dict[str, Any]:
    def body(endpoint: Endpoint) -> dict[str, Any]:
        return schema_of(MODELS[endpoint], schemas)

    events = "text/event-stream"
    return {
        "/v1/models": {"get": operation("List the model and its adapters")},
        "/v1/models/{model}": {"get": operation("Show one of them", parameters=(parameter("model", "path", _TEXT),))},
        Endpoint.CHAT.value: {"post": operation("Answer a conversation", body=body(Endpoint.CHAT), stream=events)},
        Endpoint.COMPLETIONS.value: {
            "post": operation("Complete a text", body=body(Endpoint.COMPLETIONS), stream=events)
        },
        Endpoint.EMBEDDINGS.value: {
            "post": operation("Embed texts, where the model does", body=body(Endpoint.EMBEDDINGS))
        },
        TOKENIZE: {"post": operation("Count the tokens of a body of chat or completions", body={"type": "object"})},
    }


def _ollama(schemas: dict[str, Any]) -> dict[str, Any]:
    def one(summary: str, model: type[BaseModel] | None = None, stream: str | None = None) -> dict[str, Any]:
        body = None if model is None else schema_of(model, schemas, prefix="Ollama")
        return operation(summary, body=body, stream=stream, error="OllamaError")

    lines = "application/x-ndjson"
    refused = one("Refused: models are managed on the device")
    return {
        "/": {"get": operation("Tell front ends that this is Ollama's API", answer="text/plain", error="OllamaError")},
        "/api/version": {"get": one("The release of Ollama whose API this follows")},
        "/api/tags": {"get": one("List the model and its adapters")},
        "/api/ps": {"get": one("List what is loaded")},
        "/api/show": {"post": one("Show what the model is and can", ShowBody)},
        CHAT: {"post": one("Answer a conversation", ChatBody, lines)},
        GENERATE: {"post": one("Answer a prompt", GenerateBody, lines)},
        vectors.EMBED: {"post": one("Embed texts, where the model does", EmbedBody)},
        vectors.LEGACY: {"post": one("Embed one text, where the model does", EmbedBody)},
        **{
            f"/api/{name}": {
                "post": refused | ({"parameters": [parameter("digest", "path", _TEXT)]} if "{" in name else {})
            }
            for name in MANAGED
        },
    }
