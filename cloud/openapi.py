"""Describes the cloud tier's HTTP surface as an OpenAPI document, made from the models that the guard checks with.

The ingress itself serves no such document: it is part of the documentation.
"""

from __future__ import annotations

from typing import Any

from cloud.guard import ADMIN_PREFIX
from shared.fleet import CloudCapacity
from shared.http import described
from shared.http.described import ERROR_SCHEMAS, operation, parameter, schema_of
from shared.openai.facts import Endpoint
from shared.openai.validation import MODELS

CAPACITY_ROUTE, METRICS_ROUTE = "/ops/capacity", "/ops/metrics"
_TITLES = {
    Endpoint.CHAT: "Answer a conversation",
    Endpoint.COMPLETIONS: "Complete a text",
    Endpoint.EMBEDDINGS: "Embed texts, where the model does",
}

_ACTIONS = {
    "load": "Let every replica load an adapter now (scope admin)",
    "unload": "Let replicas go of an adapter; it stays registered (scope admin)",
}


def document() -> dict[str, Any]:
    """The whole document."""
    schemas: dict[str, Any] = dict(ERROR_SCHEMAS)
    model = parameter("model", "path", {"type": "string", "maxLength": 256})
    paths: dict[str, Any] = {
        "/v1/models": {"get": operation("List the models and their adapters")},
        "/v1/models/{model}": {"get": operation("Show one of them", parameters=(model,))},
    }
    for endpoint, title in _TITLES.items():
        streams = "stream" in MODELS[endpoint].model_fields
        paths[endpoint.value] = {
            "post": operation(
                title, body=schema_of(MODELS[endpoint], schemas), stream="text/event-stream" if streams else None
            )
        }
    name = parameter("name", "path", {"type": "string", "maxLength": 256}, "`base:adapter`, as it is asked for.")
    for action, does in _ACTIONS.items():
        paths[f"{ADMIN_PREFIX}adapters/{{name}}/{action}"] = {"post": operation(does, parameters=(name,))}
    capacity = operation("What each model can take now; wakes none that sleeps", open_to_all=True)
    capacity["responses"]["200"]["content"]["application/json"] = {
        "schema": {
            "type": "object",
            "properties": {"models": {"type": "array", "items": schema_of(CloudCapacity, schemas)}},
            "required": ["models"],
        }
    }
    paths[CAPACITY_ROUTE] = {"get": capacity}
    relayed = "vLLM's own metrics of all replicas in the Prometheus text format"
    paths[METRICS_ROUTE] = {"get": operation(relayed, answer="text/plain", open_to_all=True)}
    return described.document("Isthmus cloud tier", paths, schemas)
