"""The routes of Ollama's API. Models are managed on the device itself, so those that would change any are refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from edge.runtime.port import Engine
from edge.service.adapters.selection import served_name
from edge.service.adapters.service import Adapters
from edge.service.embedding import Embeddings
from edge.service.generation import Generation
from edge.service.ollama import models, vectors
from edge.service.ollama.dialect import CHAT, GENERATE, Chat, Generate, OllamaDialect
from edge.service.ollama.errors import not_found
from edge.service.ollama.naming import model_of
from edge.service.ollama.wire import Body, EmbedBody, ShowBody, read
from edge.service.served import Served
from shared.clock import Clock
from shared.errors import Forbidden, InvalidRequest, NotFound
from shared.http.intake import read_object
from shared.keys import ApiKey, Scope

API_VERSION = "0.32.15"
"""The release of Ollama whose API this follows. Front ends compare it with the least that they need, so it cannot be
the version of this agent."""
MANAGED = ("pull", "push", "create", "copy", "delete", "blobs/{digest}")
"""Routes below /api that are refused: what manages models."""
_GREETING = "Ollama is running"
"""What front ends look for at the root of an address to know the API by."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the routes need of the agent. `require` checks a request's key, and gives it if there are keys."""

    engine: Engine
    served: Served
    generation: Generation
    embeddings: Embeddings
    adapters: Adapters
    clock: Clock
    body_limit_bytes: int
    require: Callable[[web.Request, Scope], ApiKey | None]


def routes(parts: Parts) -> list[web.RouteDef]:
    """The routes; each needs a key of scope inference, where there are keys."""
    surface = _Surface(parts)
    return [
        web.get("/", surface.greet, allow_head=True),
        web.get("/api/version", surface.version, allow_head=True),
        web.get("/api/tags", surface.tags, allow_head=True),
        web.get("/api/ps", surface.ps),
        web.post("/api/show", surface.show),
        web.post(CHAT, surface.generate(Chat)),
        web.post(GENERATE, surface.generate(Generate)),
        web.post(vectors.EMBED, surface.embed),
        web.post(vectors.LEGACY, surface.embed),
        *(web.route("*", f"/api/{name}", surface.refuse) for name in MANAGED),
    ]


class _Surface:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def greet(self, request: web.Request) -> web.StreamResponse:
        self._parts.require(request, Scope.INFERENCE)
        return web.Response(text=_GREETING)

    async def version(self, request: web.Request) -> web.StreamResponse:
        self._parts.require(request, Scope.INFERENCE)
        return _json({"version": API_VERSION})

    async def tags(self, request: web.Request) -> web.StreamResponse:
        self._parts.require(request, Scope.INFERENCE)
        facts = self._parts.served.facts
        found = [] if facts is None else models.listed(facts, await self._parts.adapters.listing())
        return _json({"models": found})

    async def ps(self, request: web.Request) -> web.StreamResponse:
        self._parts.require(request, Scope.INFERENCE)
        facts = self._parts.served.facts
        found = [] if facts is None else models.running(facts, self._parts.engine.status)
        return _json({"models": found})

    async def show(self, request: web.Request) -> web.StreamResponse:
        self._parts.require(request, Scope.INFERENCE)
        given = await self._read(request, ShowBody)
        name = given.model or given.name
        if not name:
            raise InvalidRequest("A required field is missing.", param="model")
        await self._check_served(name)
        return _json(models.described(self._parts.served.require(), model_of(name)))

    async def embed(self, request: web.Request) -> web.StreamResponse:
        key = self._parts.require(request, Scope.INFERENCE)
        given = await self._read(request, EmbedBody)
        await self._check_served(given.model)
        owner = None if key is None else key.name
        try:
            return await vectors.answer(request, given, self._parts.embeddings, self._parts.clock, owner)
        except NotFound:
            raise not_found(given.model) from None

    async def refuse(self, request: web.Request) -> web.StreamResponse:
        self._parts.require(request, Scope.INFERENCE)
        raise Forbidden(
            "Models are managed on the device itself: isthmus pull, list, rm.", code="managed_on_the_device"
        )

    def generate(self, dialect_of: Callable[[Clock], OllamaDialect]) -> Callable[[web.Request], Awaitable[Any]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            key = self._parts.require(request, Scope.INFERENCE)
            dialect = dialect_of(self._parts.clock)
            try:
                return await self._parts.generation.serve(request, dialect, None if key is None else key.name)
            except NotFound:
                raise not_found(dialect.asked_model) from None

        return handle

    async def _read(self, request: web.Request, model: type[Body]) -> Body:
        _, body = await read_object(request, limit_bytes=self._parts.body_limit_bytes, typed=False)
        return read(model, body)

    async def _check_served(self, name: str) -> None:
        body, base = {"model": model_of(name)}, self._parts.served.require().model_id
        try:
            served_name(body, base)
            await self._parts.adapters.chosen(body, base)
        except NotFound:
            raise not_found(name) from None


def _json(value: Any) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")
