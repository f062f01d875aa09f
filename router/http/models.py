"""Lists the models of the whole fleet in OpenAI's shape, with what each tier offers for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web

from router.fleet.directory import FleetDirectory
from router.http.access import Doorkeeper
from shared.fleet import FleetSnapshot
from shared.keys import Scope


class Models:
    """Handler of GET /v1/models."""

    def __init__(self, doorkeeper: Doorkeeper, directory: FleetDirectory, aliases: Mapping[str, str]) -> None:
        self._doorkeeper = doorkeeper
        self._directory = directory
        self._aliases = dict(aliases)

    async def handle(self, request: web.Request) -> web.Response:
        self._doorkeeper.admit(request, Scope.INFERENCE)
        listed = model_list(self._directory.snapshot(), self._aliases)
        return web.Response(body=orjson.dumps(listed), content_type="application/json")


def model_list(fleet: FleetSnapshot, aliases: Mapping[str, str]) -> dict[str, Any]:
    """The merged list, by name. `served_by` has one entry a backend: two digests under one name are both shown."""
    found: dict[str, list[dict[str, Any]]] = {}
    for backend in fleet.backends:
        for model in backend.models:
            found.setdefault(model.model_id, []).append(
                {
                    "backend": backend.backend_id,
                    "tier": backend.zone.tier,
                    "state": backend.state,
                    "digest": model.digest,
                    "context_tokens": model.context_tokens,
                    "features": model.features,
                }
            )
    data = [_entry(name, served) for name, served in sorted(found.items())]
    data += [_entry(alias, found[name], name) for alias, name in sorted(aliases.items()) if name in found]
    return {"object": "list", "data": data}


def _entry(name: str, served: list[dict[str, Any]], alias_of: str | None = None) -> dict[str, Any]:
    contexts = [each["context_tokens"] for each in served if each["context_tokens"] is not None]
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "isthmus",
        "isthmus": {
            "tiers": sorted({each["tier"] for each in served}),
            "digests": sorted({each["digest"] for each in served if each["digest"]}),
            "context_tokens": max(contexts, default=None),
            "alias_of": alias_of,
            "served_by": served,
        },
    }
